"""`python -m lab.defaults.optimizers`: P@1 of each optimizer with its defaults.

Trains one model per optimizer, learning rate and task for the same number of steps, with
everything else at its default: Keras's Adam, Adagrad and SGD, the row-sparse optimizers, and
some of these again with the rules for class rows from their docstrings. Prints P@1 as a table.
Each run has its own process. Its figures are kept in `--out`, so an interrupted table can be
continued.
"""

import itertools

import keras

from benchmarks.harness import tasks
from benchmarks.harness.evaluation import evaluate
from lab.shared import directions, identifiers
from lab.shared.command_line import new_parser
from lab.shared.figures import grid
from lab.shared.kept_runs import KeptRuns
from tf_largeout import layers, losses, optimizers, samplers

directions.add_task()
identifiers.add_task()

_STEPS_PER_EXECUTION = 16


def _class_rows_by_sgd(rate, batch_size):
    rows = optimizers.LazySGD(batch_size / 5)
    return keras.optimizers.MultiOptimizer(
        keras.optimizers.OptimizerMap(optimizers.LazyAdam(rate), {".*large_output.*": rows})
    )


# (learning rate, batch size) -> optimizer
OPTIMIZERS = {
    "keras Adam": lambda rate, _: keras.optimizers.Adam(rate),
    "LazyAdam": lambda rate, _: optimizers.LazyAdam(rate),
    "keras Adagrad": lambda rate, _: keras.optimizers.Adagrad(rate),
    "LazyAdagrad": lambda rate, _: optimizers.LazyAdagrad(rate),
    "RowwiseAdagrad": lambda rate, _: optimizers.RowwiseAdagrad(rate),
    "keras SGD": lambda rate, _: keras.optimizers.SGD(rate),
    "LazySGD": lambda rate, _: optimizers.LazySGD(rate),
    "LazyAdagrad, by its rule": lambda rate, _: optimizers.LazyAdagrad(
        30 * rate, initial_accumulator_value=0.0
    ),
    "RowwiseAdagrad, by its rule": lambda rate, _: optimizers.RowwiseAdagrad(30 * rate),
    "LazySGD on class rows, by its rule": _class_rows_by_sgd,
}

# task -> batch size, width, number of negatives, sampler, steps; narrow for Keras's dense Adam
SHAPES = {
    "directions": (256, 64, 64, samplers.UniformSampler, 470),
    "place_names": (512, 32, 1024, samplers.UniformSampler, 1536),
    "linux_callees": (512, 32, 1024, samplers.LogUniformSampler, 1024),
    "linux_tokens": (512, 32, 1024, samplers.LogUniformSampler, 3000),
}


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    file = options.json or f"{options.out}/defaults.json"
    kept = KeptRuns(options.out, file)
    for task in options.tasks:
        for rate, optimizer, seed in itertools.product(
            options.rates, options.optimizers, options.seeds
        ):
            run = {"task": task, "rate": rate, "optimizer": optimizer, "seed": seed}
            kept.add(run.values(), run, train, task, optimizer, rate, seed, options.steps)
        print(table(kept.runs, task), flush=True)
    return kept.report


def table(runs, task):
    """Returns P@1 of the runs on a task as Markdown: optimizers as lines, rates as columns."""
    runs = [run for run in runs if run["task"] == task]
    rates = {rate: f"{rate:g}" for rate in sorted({run["rate"] for run in runs})}
    return grid(runs, f"`{task}`, {runs[0]['steps']:,} steps", "optimizer", "rate", rates)


def train(task, optimizer, rate, seed=0, steps=None):
    """Trains one model and returns `steps` and the figures of `evaluate`.

    Args:
        task: key of `SHAPES`.
        optimizer: key of `OPTIMIZERS`.
        rate: learning rate.
        seed: seed of weights and draws.
        steps: number of training steps; that of `SHAPES` by default.
    """

    def make_optimizer(batch_size, _):
        return OPTIMIZERS[optimizer](rate, batch_size)

    return figures(task, make_optimizer, seed, steps, sample=5000)


def figures(task, make_optimizer, seed, steps, sample, measure=None, **options):
    """Trains one model and returns `steps` and the figures of `evaluate`.

    Args:
        task: key of `SHAPES`.
        make_optimizer: function of the batch size and the number of steps.
        seed: of weights and draws.
        steps: number of training steps; that of `SHAPES` if it is None.
        sample: number of test examples.
        measure: function of the model, the task and `sample` to use instead of `evaluate`.
        options: further ones of the `LargeOutput`.
    """
    batch_size, dim, num_sampled, sampler, usual_steps = SHAPES[task]
    steps = steps or usual_steps
    keras.utils.set_random_seed(seed)
    problem = tasks.load(task, batch_size)
    negatives = sampler(num_sampled, seed=seed)
    head = layers.LargeOutput(problem.num_classes, sampler=negatives, **options)
    model = problem.model(dim, head)
    model.compile(
        optimizer=make_optimizer(batch_size, steps),
        loss=losses.SampledSoftmaxLoss(),
        steps_per_execution=min(_STEPS_PER_EXECUTION, steps),
    )
    model.fit(problem.train, steps_per_epoch=steps, verbose=0)
    if measure is not None:
        return {"steps": steps, **measure(model, problem, sample)}
    return {"steps": steps, **evaluate(model, *problem.test_sample(sample))}


def _parser():
    parser = new_parser("defaults.optimizers", __doc__)
    add = parser.add_argument
    add("--tasks", nargs="+", choices=SHAPES, default=list(SHAPES)[:3])
    add("--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS))
    add("--rates", nargs="+", type=float, default=[1e-3, 3e-3, 1e-2])
    add("--steps", type=int, help="training steps of each run (default: each task's own)")
    add("--seeds", nargs="+", type=int, default=[0])
    add("--out", default="benchmark-results/defaults", help="directory of the figures")
    add("--json", help="file for the figures of the table")
    return parser


if __name__ == "__main__":
    main()
