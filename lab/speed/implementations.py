"""`python -m lab.speed.implementations`: the op library and stock operations, in turns.

Measures a training step, `evaluate` on one batch and `top_k`, with the ops of the op library,
with those in stock TensorFlow operations (`LARGEOUT_OPS=stock`), and with stock operations that
XLA compiles. The training step is also measured in JAX and PyTorch, by hand. All train the same
model: features of a dense layer, and a sampled softmax over uniform negatives that the batch
shares. Each has its own process; one of them runs at a time.

`--python` is the program of an environment with `torch` and `jax`, if this one has none.
"""

import dataclasses
import itertools

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
OTHERS = {
    "JAX, row-sparse Adam by hand": ("jax_sampled_softmax", "row-sparse Adam"),
    "PyTorch, `SparseAdam`": ("torch_sampled_softmax", "SparseAdam"),
}
_K = 10
_FIGURES = (
    *("ms_10", "ms", "ms_90", "cpu_ms_10", "cpu_ms", "cpu_ms_90"),
    *("ratio", "cpu_ratio", "first_step_s", "step_mb", "weights_and_slots_mb", "steps"),
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
    options = _parser().parse_args(arguments)
    blocks = list(itertools.product(options.num_classes, options.what))
    rows = []
    for num_classes, what in tqdm(blocks, desc="implementations", unit="block"):
        rows += _rows(options, num_classes, what)
        tqdm.write(table(rows))
    names = ("dim", "batch_size", "num_sampled", "threads")
    shape = {name: getattr(options, name) for name in names}
    report = {"machine": machine.describe(), **shape, "rows": rows}
    if options.json:
        write_json(options.json, report)
    return report


def table(rows):
    """Returns the CPU milliseconds, their ratio to the op library, and memory as Markdown."""
    lines = [
        [row["what"], f"{row['num_classes']:,}", row["title"], *_cells(row)] for row in rows
    ]
    return markdown(
        ["what", "classes", "ops", "ms: wall, CPU", "ratio", "first s", "MiB"], lines
    )


def _cells(row):
    if "error" in row:
        return [row["error"], "-", "-", "-"]
    first = f"{row['first_step_s']:.1f}" if "first_step_s" in row else "-"
    ratio = f"{row.get('cpu_ratio', 1):.2f}"
    times = f"{row['ms']:.1f}, {row['cpu_ms']:.1f}"
    return [times, ratio, first, f"{row['step_mb']:,.0f}"]


def _rows(options, num_classes, what):
    """Returns a row for each implementation, measured in turns."""
    shape = {
        "num_classes": num_classes,
        "dim": options.dim,
        "batch_size": options.batch_size,
        "num_sampled": options.num_sampled,
        "max_seconds": options.seconds,
        "threads": options.threads,
        "python": options.python,
    }
    cases, environments, titles = [], [], list(IMPLEMENTATIONS)
    for ours, environment in IMPLEMENTATIONS.values():
        if what == "step":
            cases.append(StepCase(**ours, **shape, max_steps=options.steps))
        else:
            passes = min(options.steps, options.passes)
            cases.append(PassCase(**ours, **shape, max_steps=passes, what=what))
        environments.append(environment)
    if what == "step":
        for title, (method, optimizer) in OTHERS.items():
            cases.append(StepCase(method, optimizer, **shape, max_steps=options.steps))
            environments.append({})
            titles.append(title)
    per_turn = options.steps_per_turn if what == "step" else 1
    measured = measure_in_turns(cases, per_turn, environments)
    about = {"what": what, "num_classes": num_classes}
    return [
        {"title": title, **about, **_kept(row)}
        for title, row in zip(titles, measured, strict=True)
    ]


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
    add("--dim", type=int, default=128)
    add("--batch-size", type=int, default=256)
    add("--num-sampled", type=int, default=1024)
    add("--threads", type=int, default=2)
    add("--steps", type=int, default=200, help="measured steps of a case at most")
    add("--passes", type=int, default=8, help="measured passes over all classes at most")
    add("--steps-per-turn", type=int, default=10)
    add("--seconds", type=float, default=30.0, help="measured time of a case at most")
    add("--python", help="program that runs PyTorch and JAX; by default this one")
    add("--json", help="file for the figures")
    return parser


if __name__ == "__main__":
    main()
