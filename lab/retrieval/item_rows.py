"""`python -m lab.retrieval.item_rows DATASET PATH`: rows and queries of a next-item model.

It trains the model of `examples/next_item.py`, and writes its items, and its outputs for users'
histories, in the format of `python -m benchmarks retrieval --weights PATH`.
"""

import pathlib
import tempfile

import keras
import numpy as np

from lab.next_item import data
from lab.next_item.keras_runs import OURS, ours
from lab.next_item.watch import Watch
from lab.shared.command_line import new_parser

_BATCH = 512


class LastRows(Watch):
    """Keeps rows and queries at the end of the training, instead of an evaluation.

    Attributes:
        arrays: What the program writes; None before the end.
    """

    arrays = None

    def step(self, encode, table, known=None):
        """See `Watch.step`."""
        self.num_steps += 1
        self.start()
        if self.spent < self.seconds:
            return False
        history = self.data["test_history"]
        queries = [
            encode(history[first : first + _BATCH]) for first in range(0, len(history), _BATCH)
        ]
        rows = table()
        self.arrays = {
            "W": rows,
            "b": np.zeros(len(rows), np.float32),
            "H": np.concatenate(queries).astype(np.float32),
            "y": self.data["test_target"],
        }
        return True


def main(arguments=None):
    """Trains, and writes what the command line says."""
    parser = new_parser("retrieval.item_rows", __doc__)
    add = parser.add_argument
    add("dataset", choices=data.DATASETS)
    add("path", help="an .npz file")
    add("--method", default="log_uniform", choices=OURS)
    add("--seconds", type=float, default=120, help="CPU seconds of training")
    add("--learning-rate", type=float, default=3e-3)
    add("--dropout", type=float, default=0.2)
    add("--users", type=int, default=8192, help="most users whose histories are queries")
    add("--pieces", type=int, default=200_000, help="most pieces of a text")
    options = parser.parse_args(arguments)
    keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "data.npz"
        print(data.write(path, options.dataset, options.users, options.pieces), flush=True)
        with np.load(path) as file:
            watch = LastRows(options.seconds, [], dict(file))
    ours(options.method, watch, options.learning_rate, options.dropout)
    np.savez(options.path, **watch.arrays)


if __name__ == "__main__":
    main()
