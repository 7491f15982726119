"""`python -m lab.vincent`: all measurements of the note on Vincent et al. 2015.

Times of the output layer and of the whole model, item ratings with a factored and with a dense
layer, and similar-word scores. The command line is that of `lab.vincent.similarity`. Results
are in `benchmark-results/`.
"""

import sys

from lab.factored import steps
from lab.vincent import ratings, similarity

STEPS = ["--num-classes", "793471", "--context", "0", "4", "--seconds", "15", "--methods"]
STEPS += ["factored, squared error", "factored, Taylor softmax", "dense, squared error"]


def main(arguments, of_steps=(), of_ratings=()):
    """Runs the three programs.

    Args:
        arguments: of `lab.vincent.similarity`.
        of_steps: added to the command of `lab.factored.steps`.
        of_ratings: of `lab.vincent.ratings`.
    """
    steps.main([*STEPS, "--json", "benchmark-results/whole_model.json", *of_steps])
    ratings.main(of_ratings)
    similarity.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
