"""`python -m lab.kernel_trees.absolute_text`: `absolute`, for a language model.

Trains an LSTM with each method for the same CPU seconds on one thread, and tests it exactly at
the end. With the absolute softmax, words are ranked by `|logit|`, and the perplexity is that of
the softmax of `|logit|`. Each run has its own process. Its figures are kept in `--out`, so an
interrupted series can be continued.
"""

import dataclasses

from benchmarks.harness.files import markdown
from lab.kernel_trees.absolute import NEGATIVES
from lab.shared import language_model_case, threads
from lab.shared.command_line import new_parser
from lab.shared.figures import mean_and_deviation
from lab.shared.kept_runs import KeptRuns
from lab.shared.language_model_case import Setting

_METHODS = ["frequency", "kernel_tree_pool", "kernel_tree"]
_FIGURES = {"steps": 0, "test_p1": 1, "test_perplexity": 1}


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    kept = KeptRuns(options.out, options.json or f"{options.out}/absolute_text.json", _line)
    for seed in options.seeds:
        for method in options.methods:
            setting = _setting(options, method, seed)
            kept.add(dataclasses.asdict(setting).values(), {"method": method}, train, setting)
    print(table(kept.runs), flush=True)
    return kept.report


def train(setting):
    """Trains one model on one thread; returns its exact figures and the cost of training."""
    threads.use_one()
    return language_model_case.train(setting)


def _setting(options, method, seed):
    names = {field.name for field in dataclasses.fields(Setting)}
    common = {name: value for name, value in vars(options).items() if name in names}
    return Setting(
        **common,
        sampler=method.removesuffix("_absolute"),
        absolute=method.endswith("_absolute"),
        num_sampled=NEGATIVES[method],
        seed=seed,
        by_cpu=True,
    )


def table(runs):
    """Returns the runs as Markdown, one line per method: means over the seeds."""
    lines = []
    for method in dict.fromkeys(run["method"] for run in runs):
        own = [run for run in runs if run["method"] == method]
        cells = [f"{own[0]['num_sampled']:,}", str(len(own))]
        for name, digits in _FIGURES.items():
            cells.append(mean_and_deviation([run[name] for run in own], digits))
        lines.append([method, *cells])
    return markdown(["method", "negatives", "seeds", *_FIGURES], lines)


def _line(run):
    return f"P@1 {run['test_p1']:.1f}, perplexity {run['test_perplexity']:.1f}"


def _parser():
    parser = new_parser("kernel_trees.absolute_text", __doc__)
    add, usual = parser.add_argument, Setting()
    absolute = [f"{method}_absolute" for method in _METHODS[1:]]
    add("--dataset", default="gcide")
    add("--vocabulary", type=int, help="words (default: the data set's own number)")
    add("--methods", nargs="+", choices=NEGATIVES, default=[*_METHODS, *absolute])
    add("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add("--seconds", type=float, default=25.0, help="CPU seconds of training")
    add("--learning-rate", type=float, default=usual.learning_rate, help="falls to zero")
    add("--width", type=int, default=64, help="of the embeddings and the LSTM")
    add("--batch-size", type=int, default=16, help="windows per step")
    add("--length", type=int, default=32, help="words of a window")
    add("--sample", type=int, default=128, help="windows to test on")
    add("--out", default="benchmark-results/absolute-text", help="directory of the figures")
    add("--json", help="file for the figures of all runs")
    return parser


if __name__ == "__main__":
    main()
