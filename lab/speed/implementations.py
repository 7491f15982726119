"""`python -m lab.speed.implementations`: the op library, stock operations and JAX, in turns.

Measures a training step, `evaluate` on one batch and `top_k`, with the ops of the op library,
with those in stock TensorFlow operations (`LARGEOUT_OPS=stock`), with stock operations that
XLA compiles, and on Keras's JAX backend. The training step is also measured in JAX and PyTorch,
by hand. All train the same model: features of a dense layer, and a sampled softmax over uniform
negatives that the batch shares. Each has its own process; one of them runs at a time. Steps
that read or write all rows are measured afterwards, because they evict all caches.

`--python` is the program of an environment with `jax`, `keras`, `optax` and `torch`, if this
one has none. `--print` prints the table of a file.
"""

import dataclasses
import functools
import itertools
import json
import pathlib

import keras
import tensorflow as tf
from tqdm import tqdm

from benchmarks.harness import machine
from benchmarks.harness.files import markdown, write_json
from benchmarks.harness.step_case import StepCase, measure_in_turns
from benchmarks.harness.step_clock import StepClock
from lab.shared.command_line import new_parser

_STOCK = {"LARGEOUT_OPS": "stock"}
_OURS = {"method": "ours", "optimizer": "lazy_adam"}
# title: (attributes of a `StepCase`, environment variables)
IMPLEMENTATIONS = {
    "op library": (_OURS, {"LARGEOUT_OPS": "native"}),
    "stock operations": (_OURS, _STOCK),
    "stock operations, XLA": ({**_OURS, "jit_compile": True}, _STOCK),
}
_ON_JAX, _PYTORCH = "Keras on JAX", "PyTorch, `SparseAdam`"
OTHERS = {
    _ON_JAX: ("keras_sampled_softmax", "LazyAdam"),
    "JAX, row-sparse Adam by hand": ("jax_sampled_softmax", "row-sparse Adam"),
    _PYTORCH: ("torch_sampled_softmax", "SparseAdam"),
}
SLOW = {
    "Keras on JAX, bfloat16 rows": ("keras_bfloat16", "LazyAdam"),
    "JAX, `optax.adam` on a dense gradient": ("jax_dense_gradient", "adam"),
}
_SLOW_STEPS = 8
_K = 10
_FIGURES = (
    *("ms_10", "ms", "ms_90", "cpu_ms_10", "cpu_ms", "cpu_ms_90"),
    *("ratio", "cpu_ratio_10", "cpu_ratio", "cpu_ratio_90", "first_step_s", "steps"),
    *("peak_mb", "step_mb", "weights_and_slots_mb"),
)


@dataclasses.dataclass(frozen=True)
class PassCase(StepCase):
    """One call of `evaluate` on a batch, or of `top_k`, of the model of a `StepCase`.

    `what` is "evaluate" or "top_k".
    """

    what: str = "evaluate"

    def _measure_fit(self, task, clock):
        model = self.model(task)
        features, labels = map(tf.constant, next(task.one_epoch()))
        model.predict_on_batch(features[:1])  # builds it
        standing = machine.resident_mb()
        once = self._function(model, features, labels)
        clock = StepClock(
            self.max_steps, self.max_seconds, "cpu", clock.turn, clock.steps_per_turn, warm_up=1
        )
        enough = False
        while not enough:
            clock.begin()
            once()
            enough = clock.end()
        return clock.figures(standing)

    def _function(self, model, features, labels):
        if self.what == "evaluate":
            return lambda: model.test_on_batch(features, labels)
        encoder = keras.Model(model.input, model.layers[-1].input)
        search = tf.function(
            lambda x: model.layers[-1].top_k(encoder(x), _K), jit_compile=self.jit_compile
        )
        return lambda: search(features)


def main(arguments=None):
    """Measures what the command line says and returns the report."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.print:
        print(table(json.loads(pathlib.Path(options.print).read_text())["rows"]))
        return None
    if len(options.dim) not in (1, len(options.num_classes)):
        parser.error("--dim needs one width, or one for each of --num-classes")
    dims = itertools.cycle(options.dim)
    sizes = list(zip(options.num_classes, dims, strict=False))
    rows = []
    for size, what in tqdm(
        list(itertools.product(sizes, options.what)), desc="implementations", unit="block"
    ):
        rows += _rows(options, *size, what)
        tqdm.write(table(rows))
    names = ("batch_size", "num_sampled", "threads")
    shape = {name: getattr(options, name) for name in names}
    report = {"machine": machine.describe(), **shape, "rows": rows}
    if options.json:
        write_json(options.json, report)
    return report


def table(rows):
    """Returns the milliseconds, their ratio to the op library, and memory as Markdown."""
    sizes = list(dict.fromkeys((row["num_classes"], row["dim"]) for row in rows))
    lines = []
    for what, title in dict.fromkeys((row["what"], row["title"]) for row in rows):
        found = [row for row in rows if (row["what"], row["title"]) == (what, title)]
        times = {(row["num_classes"], row["dim"]): _times(row) for row in found}
        measured = [row for row in found if "error" not in row]
        ratios = [row.get("cpu_ratio", 1) for row in measured]
        lines.append(
            [
                f"{what}, {title}",
                *(times.get(size, "-") for size in sizes),
                *(_range(ratios, ".2f"), _range([row["step_mb"] for row in measured])),
                ", ".join(f"{row['peak_mb']:,.0f}" for row in measured) or "-",
            ]
        )
    columns = [f"{num_classes:,}, width {dim}" for num_classes, dim in sizes]
    more = ["CPU ratio", "MiB of the step", "MiB of the process"]
    return markdown(["wall, CPU ms", *columns, *more], lines)


def _times(row):
    return row.get("error") or f"{row['ms']:.1f}, {row['cpu_ms']:.1f}"


def _range(values, form=",.0f"):
    ends = [format(end(values), form) for end in (min, max)] if values else ["-"]
    return " to ".join(dict.fromkeys(ends))


def _rows(options, num_classes, dim, what):
    """Returns a row for each implementation, measured in turns."""
    shape = {
        "num_classes": num_classes,
        "dim": dim,
        "batch_size": options.batch_size,
        "num_sampled": options.num_sampled,
        "max_seconds": options.seconds,
        "threads": options.threads,
        "python": options.python,
    }
    is_step = what == "step"
    kind = StepCase if is_step else functools.partial(PassCase, what=what)
    steps = options.steps if is_step else min(options.steps, options.passes)
    cases, environments = [], []
    for ours, environment in IMPLEMENTATIONS.values():
        cases.append(kind(**ours, **shape, max_steps=steps))
        environments.append(environment)
    others = dict(OTHERS) if is_step else {_ON_JAX: OTHERS[_ON_JAX]}
    if options.skip_pytorch:
        others.pop(_PYTORCH, None)
    for method, optimizer in others.values():
        cases.append(kind(method, optimizer, **shape, max_steps=steps))
        environments.append({})
    measured = measure_in_turns(cases, options.steps_per_turn if is_step else 1, environments)
    titles = [*IMPLEMENTATIONS, *others]
    for title, (method, optimizer) in SLOW.items() if is_step else ():
        case = StepCase(method, optimizer, **shape, max_steps=min(_SLOW_STEPS, steps))
        measured += measure_in_turns([case], 1)
        titles.append(title)
    about = {"what": what, "num_classes": num_classes, "dim": dim}
    rows = [
        {"title": title, **about, **_kept(row)}
        for title, row in zip(titles, measured, strict=True)
    ]
    for row in rows[1:]:
        if "cpu_ms" in row and "cpu_ms" in rows[0]:  # else from the turns
            row.setdefault("cpu_ratio", round(row["cpu_ms"] / rows[0]["cpu_ms"], 3))
    return rows


def _kept(row):
    if "error" in row:
        return {"error": row["error"]}
    return {name: round(row[name], 3) for name in _FIGURES if name in row}


def _parser():
    parser = new_parser("speed.implementations", __doc__)
    add = parser.add_argument
    add("--num-classes", type=int, nargs="+", default=[100_000, 1_000_000, 4_000_000])
    add(
        "--what",
        nargs="+",
        choices=["step", "evaluate", "top_k"],
        default=["step", "evaluate", "top_k"],
    )
    add("--dim", type=int, nargs="+", default=[128], help="one, or one for each size")
    add("--batch-size", type=int, default=256)
    add("--num-sampled", type=int, default=1024)
    add("--threads", type=int, default=2)
    add("--steps", type=int, default=200, help="measured steps of a case at most")
    add("--passes", type=int, default=8, help="measured passes over all classes at most")
    add("--steps-per-turn", type=int, default=10)
    add("--seconds", type=float, default=30.0, help="measured time of a case at most")
    add("--python", help="program that runs JAX and PyTorch; by default this one")
    add("--skip-pytorch", action="store_true", help="do not measure PyTorch")
    add("--json", help="file for the figures")
    add("--print", help="measure nothing, print the table of this file")
    return parser


if __name__ == "__main__":
    main()
