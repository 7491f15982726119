"""`python -m lab.barber_botev`: all measurements of the note on Barber & Botev 2016.

The toy problem with the sizes of the paper and with 200,000 examples, and word vectors. Results
are in `benchmark-results/`.
"""

from lab.barber_botev import likelihood

_METHODS = ["exact", "bernoulli_batch", "importance_batch", "bernoulli", "blackout"]
_RANKING = ["ranking", "ranking_1", "ranking_0"]
_LARGE = ["--epochs", "1", "--own-rates", "--grid", "0.3333333333", "1", "3", "--estimators"]
ARGUMENTS = {
    "toy": [],
    "toy_large": [*_LARGE, *_METHODS, *_RANKING],
    "words": ["--epochs", "4"],
}


def main():
    """Runs the three problems, one after the other."""
    for name, arguments in ARGUMENTS.items():
        files = ["--json", f"benchmark-results/{name}.json"]
        files += ["--png", f"benchmark-results/{name}.png"]
        likelihood.main(["--problem", name, *arguments, *files])


if __name__ == "__main__":
    main()
