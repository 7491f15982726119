"""`python -m lab.negatives.starts`: P@1 by the step in which the search begins.

Trains the `recommended` model of a task, or a language model of a text, for some seconds of
computation, with a rate that falls to zero in this time: without a search (`never`), with the
default start (`rule`), and with each given step. Prints the final P@1, mean and standard
deviation over the seeds. A start is too early or too late if its row is below that of `never`.
Each run has its own process. Its figures are kept in `--out`, so an interrupted table can be
continued.
"""

import argparse
import itertools

import keras

from benchmarks.harness import tasks
from benchmarks.harness.evaluation import evaluate
from benchmarks.harness.tasks import TASKS
from benchmarks.harness.training import ENDLESS, TrainingClock
from benchmarks.methods.method_table import METHODS
from lab.shared import language_model_case
from lab.shared.command_line import new_parser
from lab.shared.directions import add_task
from lab.shared.figures import grid
from lab.shared.kept_runs import KeptRuns

add_task()

_NEGATIVES = 1024  # for texts; a task has its own number
_TEXTS = ("brown", "gcide")
_RULE, _NEVER = "rule", "never"


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    out = options.out or f"benchmark-results/starts-{options.problem}"
    file = options.json or f"{out}/starts.json"
    kept = KeptRuns(out, file, _line, problem=options.problem)
    for seed, seconds, start in itertools.product(
        options.seeds, options.seconds, options.starts
    ):
        words = [start, f"{seconds:g}", seed, *["validation"] * options.validation]
        run = {"start": start, "seconds": seconds, "seed": seed}
        given = options.problem, *run.values(), options.sample, options.validation
        kept.add(words, run, train, *given)
    print(table(kept.runs), flush=True)
    return kept.report


def train(problem, start, seconds, seed, sample, on_validation):
    """Trains one model and returns `p1` in per cent, and the steps it took.

    Args:
        problem: key of `TASKS`, or a text that `language_model_case` knows.
        start: number of the step, `rule` or `never`.
        seconds: CPU seconds of training, on all cores.
        seed: seed of weights, draws and order.
        sample: examples, or windows of a text, to test on.
        on_validation: test on examples cut from the training split.
    """
    keras.utils.set_random_seed(seed)
    of = _text if problem in _TEXTS else _task
    model, batches, p1 = of(problem, start, seed, sample, on_validation)
    clock = TrainingClock(seconds, seconds, lambda *_: {}, by_cpu=True, anneal=1.0)
    model.fit(batches, steps_per_epoch=ENDLESS, callbacks=[clock], shuffle=False, verbose=0)
    begun = -1 if start == _NEVER else model.layers[-1].sampler.start.started_at()
    return {"p1": p1(), "steps": int(model.optimizer.iterations), "started_at": begun}


def table(runs):
    """Returns P@1 as Markdown: one line per start, one column per time."""
    times = sorted({run["seconds"] for run in runs})
    titles = {time: f"{time:g} s" for time in times}
    return grid(runs, "search from", "start", "seconds", titles)


def _task(name, start, seed, sample, on_validation):
    """Returns a compiled model of a task, its training batches, and a function to test it."""
    search = {"search": None}
    if start != _NEVER:
        search = {"search_options": {"start_step": _step(start)}}
    settings = METHODS["recommended"].settings_for(name, **search)
    task = tasks.load(name, settings.batch_size, seed, on_validation)
    model = METHODS["recommended"].model(task, settings)
    known = *task.test_sample(sample), task.label_counts, task.num_examples
    return model, task.train, lambda: evaluate(model, *known)["p1"]


def _text(name, start, seed, sample, on_validation):
    """Like `_task`, for a language model."""
    search = {"sampler": "frequency"}
    if start != _NEVER:
        search = {
            "sampler": "inverted_file",
            "tail": "frequency",
            "start_step": _step(start),
        }
    setting = language_model_case.Setting(
        name, num_sampled=_NEGATIVES, seed=seed, seconds=1.0, **search
    )  # with any `seconds`, the clock sets the learning rate
    data = language_model_case.load(setting)
    model = language_model_case.build_model(data, setting)
    split = data.validation if on_validation else data.test
    windows = split.take(-(-sample // setting.batch_size))

    def p1():
        return 100 * model.evaluate(windows, verbose=0, return_dict=True)["p1"]

    return model, data.train.repeat(), p1


def _step(start):
    return None if start == _RULE else int(start)


def _start(text):
    if text in (_RULE, _NEVER) or text.isdecimal():
        return text
    raise argparse.ArgumentTypeError(
        f"expected the number of a step, {_RULE} or {_NEVER}; got {text!r}"
    )


def _line(run):
    return f"P@1 {run['p1']:.1f}, {run['steps']:,} steps"


def _parser():
    parser = new_parser("negatives.starts", __doc__)
    add = parser.add_argument
    add("--problem", choices=[*TASKS, *_TEXTS], default="place_names")
    add("--starts", nargs="+", type=_start, default=[_NEVER, _RULE])
    add("--seconds", nargs="+", type=float, default=[10.0, 20.0, 40.0])
    add("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add("--sample", type=int, default=5000, help="examples, or windows, to test on")
    add("--validation", action="store_true", help="test on a part of the training split")
    add("--out", help="directory of the figures")
    add("--json", help="file for the figures of the table")
    return parser


if __name__ == "__main__":
    main()
