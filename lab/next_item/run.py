"""`python -m lab.next_item.run`: one run of the comparison, in its own process.

`lab.next_item.compare` calls it, with an interpreter that has the packages of the method.
"""

import json
import pathlib
import resource
import time

import numpy as np

from lab.next_item.watch import Watch
from lab.shared.command_line import new_parser


def main(arguments=None):
    """Trains one method and writes its results."""
    parser = new_parser("next_item.run", __doc__)
    parser.add_argument("--method", required=True)
    parser.add_argument("--data", required=True, help="file of lab.next_item.data")
    parser.add_argument("--seconds", type=float, required=True, help="CPU seconds of training")
    parser.add_argument("--fractions", type=float, nargs="+", required=True)
    parser.add_argument(
        "--learning-rate", type=float, required=True, help="of our model, also in PyTorch"
    )
    parser.add_argument("--dropout", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args(arguments)
    with np.load(options.data) as file:
        data = dict(file)
    watch = Watch(options.seconds, options.fractions, data)
    num_weights = _train(options, watch)
    result = {
        **{name: getattr(options, name) for name in ("method", "seed", "seconds")},
        "learning_rate": options.learning_rate,
        "dropout": options.dropout,
        "weights": int(num_weights),
        "results": watch.results,
        "cpu_seconds_in_all": time.process_time(),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    pathlib.Path(options.out).write_text(json.dumps(result, indent=1))


def _train(options, watch):
    rate, dropout = options.learning_rate, options.dropout
    if options.method.startswith(("torch", "rectools")):
        import torch

        from lab.next_item import torch_runs

        torch.manual_seed(options.seed)
        np.random.seed(options.seed)
        torch.set_num_threads(1)
        torch.set_num_interop_threads(1)
        if options.method in torch_runs.TWINS:
            return torch_runs.our_model(options.method, watch, rate, dropout)
        return torch_runs.rectools(options.method, watch, options.seed)
    import keras

    from lab.next_item import keras_runs
    from lab.shared import threads

    threads.use_one()
    keras.utils.set_random_seed(options.seed)
    if options.method == "keras_rs":
        return keras_runs.keras_rs(watch, dropout)
    return keras_runs.ours(options.method, watch, rate, dropout)


if __name__ == "__main__":
    main()
