"""`python -m lab.vincent`: all measurements of the note on Vincent et al. 2015.

Times of the output layer and of the whole model, item ratings with a factored and with a dense
layer, and similar-word scores. The command line is that of `lab.vincent.similarity`.
"""

import sys

from lab.factored import steps
from lab.vincent import ratings, similarity

_METHODS = ["factored, squared error", "factored, Taylor softmax", "dense, squared error"]


def main(arguments):
    """Runs the three programs; results are in `benchmark-results/`."""
    sizes = ["--num-classes", "793471", "--context", "0", "4", "--seconds", "15"]
    json = ["--json", "benchmark-results/whole_model.json"]
    steps.main([*sizes, *json, "--methods", *_METHODS])
    ratings.main([])
    similarity.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
