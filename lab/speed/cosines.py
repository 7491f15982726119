"""`python -m lab.speed.cosines`: time of exact passes with and without normalized rows.

Measures `evaluate` (with P@1) and `top_k` of a `LargeOutput` with `normalize=False` and with
`normalize=True`. The rows are random. Both layers take turns, in `--rounds` rounds after one
that traces the graphs. Prints medians, and the median ratio of the two.
"""

import time

import keras
import numpy as np

from benchmarks.harness import machine
from benchmarks.harness.files import write_json
from lab.shared.command_line import new_parser
from tf_largeout import layers, losses, metrics

_K = 10


def main(arguments=None):
    """Measures what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    runs = [
        {"batch_size": batch_size, **times(options, batch_size)}
        for batch_size in options.batch_sizes
    ]
    report = {"machine": machine.describe(), "options": vars(options), "runs": runs}
    print(table(runs))
    if options.json:
        write_json(options.json, report)
    return report


def times(options, batch_size):
    """Returns the median seconds per batch of each pass, without and with `normalize`."""
    draws = np.random.default_rng(0)
    x = draws.normal(size=(batch_size, options.dim)).astype("float32")
    y = draws.integers(options.num_classes, size=batch_size)
    models = [_model(options, normalize) for normalize in (False, True)]
    passes = {
        "evaluate": lambda model: model.test_on_batch(x, y),
        "top_k": lambda model: model.layers[-1].top_k(x, _K)[0].numpy(),
    }
    found = {}
    for name, run in passes.items():
        seconds = np.array(
            [[_time(run, model) for model in models] for _ in range(options.rounds + 1)][1:]
        )
        found[name] = {
            "seconds": np.median(seconds, axis=0).tolist(),
            "ratio": float(np.median(seconds[:, 1] / seconds[:, 0])),
        }
    return found


def table(runs):
    """Returns the milliseconds per batch as Markdown."""
    lines = ["| examples | pass | `normalize=False` | `normalize=True` | ratio |"]
    lines.append("|---:|---|---:|---:|---:|")
    for run in runs:
        for name in ("evaluate", "top_k"):
            plain, normalized = (1e3 * one for one in run[name]["seconds"])
            lines.append(
                f"| {run['batch_size']} | `{name}` | {plain:.0f} ms | {normalized:.0f} ms | "
                f"{run[name]['ratio']:.2f} |"
            )
    return "\n".join(lines)


def _model(options, normalize):
    head = layers.LargeOutput(options.num_classes, normalize=normalize)
    model = keras.Sequential([keras.Input([options.dim]), head])
    model.compile(loss=losses.SoftmaxLoss(), metrics=[metrics.PrecisionAtK(1)])
    return model


def _time(run, model):
    start = time.perf_counter()
    run(model)
    return time.perf_counter() - start


def _parser():
    parser = new_parser("speed.cosines", __doc__)
    parser.add_argument("--num-classes", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 32, 512])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", help="file for the figures")
    return parser


if __name__ == "__main__":
    main()
