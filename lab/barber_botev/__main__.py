"""`python -m lab.barber_botev`: all measurements of the note on Barber & Botev 2016.

The toy problem with the sizes of the paper and with 200,000 examples, word vectors, and ranking
losses on two classification tasks. Results are in `benchmark-results/`.
"""

from lab.barber_botev import likelihood
from lab.vijayanarasimhan import training

_METHODS = ["exact", "bernoulli_batch", "importance_batch", "bernoulli", "bernoulli_observed"]
_RANKING = ["blackout", "blackout_tuned", "ranking", "ranking_1", "ranking_0", "hinge"]
_LARGE = ["--epochs", "1", "--own-rates", "--grid", "0.3333333333", "1", "3", "--estimators"]
_WORDS = [name for name in likelihood.ESTIMATORS if name != "bernoulli_observed"]
ARGUMENTS = {
    "toy": [],
    "toy_large": [*_LARGE, *_METHODS, *_RANKING],
    "words": ["--epochs", "4", "--estimators", *_WORDS],
}
_UNIFORM = [f"ranking_uniform{margin}" for margin in ("", "_1", "_0", "_hinge")]
RANKING = ["--methods", "uniform", *_UNIFORM]
RANKING += ["--out", "benchmark-results/ranking", "--json", "benchmark-results/ranking.json"]


def main():
    """Runs the three problems and the classification tasks, one after the other."""
    for name, arguments in ARGUMENTS.items():
        files = ["--json", f"benchmark-results/{name}.json"]
        files += ["--png", f"benchmark-results/{name}.png"]
        likelihood.main(["--problem", name, *arguments, *files])
    training.main(RANKING)


if __name__ == "__main__":
    main()
