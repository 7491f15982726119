"""`python -m lab.races.race`: the package's `race`, with the methods of the notes as well.

The methods are in `lab/shared/methods.py`. `--help` describes the options.
"""

from lab.shared.methods import METHODS
from tf_largeout.benchmarks import race

if __name__ == "__main__":
    race.main(methods=METHODS)
