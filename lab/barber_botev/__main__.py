"""`python -m lab.barber_botev`: all measurements of the note on Barber & Botev 2016.

The toy problem with the sizes of the paper, with 200,000 examples, and with 500 classes; word
vectors, and ranking losses on two classification tasks. Results are in `benchmark-results/`,
with the names of the files of the note.
"""

from lab.barber_botev import likelihood
from lab.vijayanarasimhan import training

_BATCH = ["importance_batch", "bernoulli_batch"]
_MARGINS = ["ranking", "ranking_1", "ranking_0"]
_PAPER = ["exact", "importance", "bernoulli", *_BATCH, "blackout", "nce", "negative_sampling"]
_PAPER += _MARGINS
_MORE = ["bernoulli_observed", "blackout_tuned", "hinge"]
_TUNED = ["exact", *_BATCH, "bernoulli", "blackout", *_MARGINS]
_THIRD = "0.3333333333"
_ONE = ["--epochs", "1", "--grid"]
ARGUMENTS = {
    "toy": ["--estimators", *_PAPER],
    "toy_more": ["--estimators", *_MORE],
    "toy_500": ["--estimators", *_MARGINS],
    "toy_large": [*_ONE, _THIRD, "1", "3", "--own-rates", "--estimators", *_TUNED],
    "toy_large_more": [*_ONE, "1", "--estimators", *_MORE],
    "toy_large_500": [*_ONE, "0.1", _THIRD, "1", "3", "--estimators", *_MARGINS],
    "words": ["--epochs", "4", "--estimators", *_PAPER],
    "words_more": ["--epochs", "4", "--grid", _THIRD, "--estimators", "blackout_tuned"],
}
_UNIFORM = [f"ranking_uniform{margin}" for margin in ("", "_1", "_0", "_hinge")]
RANKING = ["--methods", "uniform", *_UNIFORM, "--seeds", "0", "1", "2"]


def command(name):
    """Returns the arguments of `lab.barber_botev.likelihood` for a file of the note."""
    return ["--problem", name.removesuffix("_more"), *ARGUMENTS[name]]


def main(arguments=()):
    """Runs the problems and the classification tasks, one after the other.

    Args:
        arguments: added to each command of `lab.barber_botev.likelihood`.
    """
    for name in ARGUMENTS:
        files = ["--json", f"benchmark-results/{name}.json"]
        files += ["--png", f"benchmark-results/{name}.png"]
        likelihood.main([*command(name), *files, *arguments])
    files = ["--out", "benchmark-results/ranking", "--json", "benchmark-results/ranking.json"]
    training.main([*RANKING, *files])


if __name__ == "__main__":
    main()
