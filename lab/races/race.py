"""`python -m lab.races.race`: the package's `race`, with the methods of the notes as well.

The methods are in `lab/shared/methods.py`. `--help` describes the options.
"""

from benchmarks import race
from lab.shared.methods import METHODS

if __name__ == "__main__":
    race.main(methods=METHODS)
