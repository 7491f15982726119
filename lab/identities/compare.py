"""`python -m lab.identities.compare`: verification by the number of sampled identities.

Trains the model of `examples/identities.py` with margin softmax over all identities, and over
the labels and a uniform sample of the others. `--steps` compares at equal steps, `--seconds` at
equal CPU time (of all threads, without the time to create the model). Learning rates fall
linearly to zero over the run. The pairs of the test show new identities. LazyAdam trains all
weights, or, with `--row-rates`, `LazySGD` the class rows.

Each run has its own process. Its figures are kept in `--out`, so an interrupted table can be
continued.
"""

import importlib.util
import itertools
import pathlib
import time

import keras

from benchmarks.harness.files import markdown
from lab.shared.command_line import new_parser
from lab.shared.figures import mean_and_deviation
from lab.shared.kept_runs import KeptRuns
from tf_largeout import losses, optimizers

_EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "identities.py"


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    file = options.json or f"{options.out}/identities.json"
    kept = KeptRuns(options.out, file, str)
    for seed, margin, row_rate, sampled in itertools.product(
        options.seeds, options.margins, options.row_rates or [None], options.sampled
    ):
        run = {"identities": options.identities, "sampled": sampled, "margin": margin}
        run |= {"row_rate": row_rate, "steps": options.steps, "seconds": options.seconds}
        run["seed"] = seed
        words = [f"{key}={value:g}" for key, value in run.items() if value is not None]
        kept.add(words, run, train, run, options.batch_size, options.learning_rate)
    print(table(kept.runs), flush=True)
    return kept.report


def table(runs):
    """Returns the runs as Markdown, one line per setting: mean ± deviation over the seeds."""
    rows = []
    settings = [(run["sampled"], run["margin"], run["row_rate"]) for run in runs]
    for setting in dict.fromkeys(settings):
        of_setting = [run for run, its in zip(runs, settings, strict=True) if its == setting]
        sampled, margin, row_rate = setting
        rows.append([f"{sampled:,}" if sampled else "all", f"{margin:g}"])
        rows[-1].append("LazyAdam" if row_rate is None else f"LazySGD({row_rate:g})")
        for name, digits in {"done": 0, "cpu": 0, "correct": 2, "accepted": 1}.items():
            rows[-1].append(mean_and_deviation([run[name] for run in of_setting], digits))
    head = ["negatives", "margin", "class rows", "steps", "CPU seconds", "pairs correct"]
    return markdown([*head, "accepted at 1e-3"], rows)


class _UntilTheEnd(keras.callbacks.Callback):
    """Lowers the rates linearly to zero, and stops after CPU seconds or steps."""

    def __init__(self, steps, seconds):
        super().__init__()
        self.steps, self.seconds, self.done = steps, seconds, 0

    def on_train_begin(self, logs=None):
        optimizer = self.model.optimizer
        self.optimizers = getattr(optimizer, "optimizers", [optimizer])
        self.rates = [float(one.learning_rate) for one in self.optimizers]
        self.start = time.process_time()

    def on_train_batch_end(self, batch, logs=None):
        self.done = int(self.optimizers[0].iterations)
        self.cpu = time.process_time() - self.start
        share = self.cpu / self.seconds if self.seconds else self.done / self.steps
        self.model.stop_training = share >= 1
        for optimizer, rate in zip(self.optimizers, self.rates, strict=True):
            optimizer.learning_rate = rate * max(1 - share, 1e-3)


def train(run, batch_size, learning_rate):
    """Trains one model and returns steps, CPU seconds and both figures in per cent."""
    spec = importlib.util.spec_from_file_location("identities", _EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    keras.utils.set_random_seed(run["seed"])
    model = example.build_model(run["identities"], run["sampled"])
    optimizer = optimizers.LazyAdam(learning_rate)
    if run["row_rate"] is not None:
        rows = optimizers.LazySGD(run["row_rate"])
        optimizer = keras.optimizers.MultiOptimizer(
            keras.optimizers.OptimizerMap(optimizer, {".*large_output.*": rows})
        )
    model.compile(
        optimizer,
        losses.MarginSoftmaxLoss(angular_margin=run["margin"]),
        steps_per_execution=10 if 0 < run["sampled"] <= 20_000 else 1,
    )
    end = _UntilTheEnd(run["steps"], run["seconds"])
    data = example.Pictures(run["identities"], seed=0).batches(batch_size, run["seed"])
    steps = run["steps"] or 10**9
    model.fit(data, steps_per_epoch=steps, callbacks=[end], shuffle=False, verbose=0)
    correct, accepted = example.verify(model.get_layer("encoder"))
    figures = {"correct": 100 * float(correct), "accepted": 100 * float(accepted)}
    return {"done": end.done, "cpu": end.cpu, **figures}


def _parser():
    parser = new_parser("identities.compare", __doc__)
    add = parser.add_argument
    add("--identities", type=int, default=1_000_000)
    add("--sampled", nargs="+", type=int, default=[1_000, 10_000, 100_000, 0])
    add("--margins", nargs="+", type=float, default=[0.3], help="angular, in radians")
    add("--row-rates", nargs="+", type=float, help="of LazySGD; LazyAdam without")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=int)
    length.add_argument("--seconds", type=float, help="of CPU time")
    add("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add("--batch-size", type=int, default=256)
    add("--learning-rate", type=float, default=1e-3)
    add("--out", default="benchmark-results/identities", help="folder of single runs")
    add("--json", help="file of the report")
    return parser


if __name__ == "__main__":
    main()
