"""`python -m lab.races.tune`: the package's `tune`, with the methods of the notes as well.

The methods are in `lab/shared/methods.py`. `--help` describes the options.
"""

from benchmarks import tune
from lab.shared.methods import METHODS

if __name__ == "__main__":
    tune.main(methods=METHODS)
