"""`python -m lab.shown_metrics.compare`: P@1 that `fit` shows, and the exact P@1.

Trains one model per sampler and seed for some epochs, with `ExactMetrics` on a sample of the
test examples. After each epoch, `evaluate` also computes the exact P@1 of more test examples.
Prints all of them as a table, in per cent.
"""

import time

import keras

from benchmarks.harness import machine, tasks
from benchmarks.harness.files import write_json
from lab.shared.command_line import new_parser
from tf_largeout import callbacks, layers, losses, metrics, optimizers, samplers

SAMPLERS = {
    "log_uniform": samplers.LogUniformSampler,
    "inverted_file": lambda number, seed: samplers.InvertedFileSampler(
        number, tail="log_uniform", seed=seed
    ),
}
COLUMNS = ("shown", "exact_sample", "evaluate")


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    task = tasks.load(options.task, options.batch_size)
    runs = [
        {"sampler": sampler, "seed": seed, **train(task, sampler, seed, options)}
        for sampler in options.samplers
        for seed in options.seeds
    ]
    report = {"machine": machine.describe(), "options": vars(options), "runs": runs}
    print(table(runs))
    if options.json:
        write_json(options.json, report)
    return report


def train(task, sampler, seed, options):
    """Trains one model; returns P@1 per epoch by column, and seconds of `ExactMetrics`."""
    keras.utils.set_random_seed(seed)
    head = layers.LargeOutput(
        task.num_classes, SAMPLERS[sampler](options.num_sampled, seed=seed)
    )
    model = task.model(options.dim, head)
    model.compile(
        optimizers.LazyAdam(), losses.SampledSoftmaxLoss(), metrics=[metrics.PrecisionAtK(1)]
    )
    exact = _Timed(callbacks.ExactMetrics(*task.test, num_examples=options.sample))
    full = _Evaluation(task.test_sample(options.test_examples))
    steps = options.steps or task.num_examples // options.batch_size
    history = model.fit(
        task.train,
        steps_per_epoch=steps,
        epochs=options.epochs,
        callbacks=[exact, full],
        shuffle=False,
        verbose=2,
    ).history
    names = ("precision_at_1", "exact_precision_at_1", "evaluated")
    found = {
        column: [100 * float(value) for value in history[name]]
        for column, name in zip(COLUMNS, names, strict=True)
    }
    return {**found, "steps": steps, "seconds_of_exact_metrics": exact.seconds}


class _Timed(keras.callbacks.Callback):
    """Measures how long another callback takes at the end of each epoch."""

    def __init__(self, callback):
        super().__init__()
        self.callback, self.seconds = callback, []

    def set_model(self, model):
        super().set_model(model)
        self.callback.set_model(model)

    def on_train_begin(self, logs=None):
        self.callback.on_train_begin(logs)

    def on_epoch_end(self, epoch, logs=None):
        start = time.perf_counter()
        self.callback.on_epoch_end(epoch, logs)
        self.seconds.append(time.perf_counter() - start)


class _Evaluation(keras.callbacks.Callback):
    """Adds P@1 of given examples to the logs, as "evaluated"."""

    def __init__(self, examples):
        super().__init__()
        self.exact = callbacks.ExactMetrics(*examples, num_examples=None, batch_size=256)

    def on_epoch_end(self, epoch, logs=None):
        self.exact.set_model(self.model)
        self.exact.on_epoch_end(epoch)
        logs["evaluated"] = self.exact.results[-1]["precision_at_1"]


def table(runs):
    """Returns P@1 of each epoch as Markdown."""
    lines = ["| negatives | seed | epoch | shown by `fit` | `ExactMetrics` | `evaluate` |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for run in runs:
        for epoch, values in enumerate(zip(*(run[name] for name in COLUMNS), strict=True)):
            cells = " | ".join(f"{value:.1f}" for value in values)
            lines.append(f"| `{run['sampler']}` | {run['seed']} | {epoch + 1} | {cells} |")
    return "\n".join(lines)


def _parser():
    parser = new_parser("shown_metrics.compare", __doc__)
    parser.add_argument("--task", choices=tasks.TASKS, default="linux_callees")
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, help="per epoch; by default all examples")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--num-sampled", type=int, default=1024)
    parser.add_argument("--sample", type=int, default=1000, help="examples of ExactMetrics")
    parser.add_argument("--test-examples", type=int, default=5000, help="of `evaluate`")
    parser.add_argument("--json", help="file for the figures")
    return parser


if __name__ == "__main__":
    main()
