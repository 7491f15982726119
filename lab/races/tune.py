"""`python -m lab.races.tune`: the package's `tune`, with the methods of the notes as well.

The methods are in `lab/shared/methods.py`. `--help` describes the options.
"""

from lab.shared.methods import METHODS
from tf_largeout.benchmarks import tune

if __name__ == "__main__":
    tune.main(methods=METHODS)
