"""`python -m lab.blanc_rendle.bias`: bias of sampled softmax, figures 2 to 4 of Blanc & Rendle.

A language model learns a part of a text, with m draws for each position from several
distributions. Several times during training it is evaluated by perplexity over all words on
validation text, and at the end on test text. The learning rate falls linearly to zero. Every
distribution draws with replacement, independently for each position, as in Blanc & Rendle 2018,
"Adaptive sampled softmax with kernel based sampling". `full` is the exact softmax. To use the
row-sparse update rule of the others, it "draws" each word once. Each run has its own process.
Its figures are kept in `--out`, so an interrupted series can be continued.
"""

import dataclasses
import itertools
import time

import keras

from benchmarks.methods.optimizers import OPTIMIZERS
from lab.blanc_rendle.plots import draw_bias
from lab.shared import language_model_case
from lab.shared.command_line import new_parser
from lab.shared.figures import grid
from lab.shared.kept_runs import KeptRuns
from lab.shared.language_model_case import Setting


@dataclasses.dataclass(frozen=True)
class Distribution:
    """A distribution of negatives and the loss that is trained with it.

    Attributes:
        sampler: key of `lab.shared.samplers.SAMPLERS`.
        counts: numbers of draws per position, by default; None draws each word once.
        absolute: whether the model is the softmax of `|logit|`.
    """

    sampler: str
    counts: tuple | None
    absolute: bool = False


DISTRIBUTIONS = {
    "full": Distribution("uniform", None),
    "full, absolute softmax": Distribution("uniform", None, absolute=True),
    "uniform": Distribution("uniform_own", (8, 32, 128, 512)),
    "unigram": Distribution("frequency_own", (8, 32, 128)),
    "kernel tree, absolute softmax": Distribution("kernel_tree", (8, 32, 128), absolute=True),
    "softmax": Distribution("softmax", (8, 32, 128)),
    "bigram": Distribution("bigram", (8, 32)),
    "quartic kernel, absolute softmax": Distribution("quartic", (8, 32), absolute=True),
}


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    kept = KeptRuns(options.out, options.json or f"{options.out}/bias.json", _line)
    choices = options.learning_rates, options.seeds, options.distributions
    for rate, seed, title in itertools.product(*choices):
        for setting in _settings(title, rate, seed, options):
            words = [*dataclasses.asdict(setting).values(), options.points]
            kept.add(words, {}, train, title, setting, options.points)
    draw_bias(kept.runs, options.png or f"{options.out}/bias.png")
    print(table(kept.runs), flush=True)
    return kept.report


def train(title, setting, points):
    """Trains one model; returns its perplexities and its cost.

    Args:
        title: key of `DISTRIBUTIONS`.
        setting: a `Setting`.
        points: number of evaluations on validation text.
    """
    keras.utils.set_random_seed(setting.seed)
    data = language_model_case.load(setting)
    model = language_model_case.build_model(data, setting)
    cpu_started = time.process_time()
    history = model.fit(
        data.train.repeat(),
        epochs=points,
        steps_per_epoch=max(1, round(setting.epochs * len(data.train)) // points),
        validation_data=language_model_case.part(data.validation, setting),
        shuffle=False,
        verbose=0,
    ).history
    cpu_seconds = time.process_time() - cpu_started
    test = language_model_case.part(data.test, setting)
    found = model.evaluate(test, verbose=0, return_dict=True)
    return {
        **dataclasses.asdict(setting),
        "title": title,
        "num_classes": data.num_classes,
        "steps": int(model.optimizer.iterations),
        "cpu_seconds": cpu_seconds,
        "points": points,
        "validation_perplexity": history["val_perplexity"],
        "test_perplexity": found["perplexity"],
    }


def best_rate(runs):
    """Returns the learning rate of the run with the lowest last validation perplexity."""
    return min(runs, key=lambda run: run["validation_perplexity"][-1])["learning_rate"]


def table(runs):
    """Returns test perplexities as Markdown: a line per distribution, a column per draw count.

    With several seeds, mean ± standard deviation. Several learning rates have lines of their
    own.
    """
    counts = sorted({run["num_sampled"] for run in runs if _draws(run)})
    titles = {count: f"{count:,}" for count in counts} or {None: ""}
    has_rates = len({run["learning_rate"] for run in runs}) > 1
    lines = []
    for run in runs:
        rate = f", rate {run['learning_rate']:g}" if has_rates else ""
        count = run["num_sampled"] if _draws(run) else None
        lines.append({**run, "title": run["title"] + rate, "num_sampled": count})
    return grid(lines, "drawn from", "title", "num_sampled", titles, "test_perplexity")


def _draws(run):
    return DISTRIBUTIONS[run["title"]].counts is not None


def _settings(title, rate, seed, options):
    """Yields the `Setting` of each number of draws."""
    distribution = DISTRIBUTIONS[title]
    counts = (options.vocabulary,)
    if distribution.counts:
        counts = options.num_sampled or distribution.counts
    names = {field.name for field in dataclasses.fields(Setting)}
    common = {name: value for name, value in vars(options).items() if name in names}
    for count in counts:
        own = {"sampler": distribution.sampler, "absolute": distribution.absolute}
        own |= {"num_sampled": count, "seed": seed, "learning_rate": rate}
        yield Setting(**{**common, **own})


def _line(run):
    return f"perplexity {run['test_perplexity']:.1f}, {run['cpu_seconds']:.0f} CPU s"


def _parser():
    parser = new_parser("blanc_rendle.bias", __doc__)
    add = parser.add_argument
    add("--dataset", default="brown")
    add("--vocabulary", type=int, default=2000, help="classes")
    add("--distributions", nargs="+", choices=DISTRIBUTIONS, default=list(DISTRIBUTIONS))
    add("--num-sampled", nargs="+", type=int, help="draws (default: each distribution's own)")
    add("--seeds", nargs="+", type=int, default=[0])
    add("--epochs", type=float, default=10, help="2, or .1 for a tenth of one")
    add("--points", type=int, default=10, help="evaluations on validation text")
    add("--optimizer", choices=OPTIMIZERS, default="lazy_sgd")
    add("--learning-rates", nargs="+", type=float, default=[10.0], help="fall to zero")
    add("--width", type=int, default=16, help="of the embeddings and the LSTM")
    add("--dropout", type=float, default=0.2)
    add("--batch-size", type=int, default=32, help="windows per step")
    add("--length", type=int, default=8, help="words of a window")
    add("--validation-fraction", type=float, default=0.97, help="of the text, not trained on")
    add("--sample", type=int, default=1024, help="windows that a perplexity is of")
    add("--out", default="benchmark-results/bias", help="directory of the figures")
    add("--json", help="file for the figures of all runs")
    add("--png", help="file for the picture")
    return parser


if __name__ == "__main__":
    main()
