"""`python -m lab.speed.tied`: a language model's step with tied and untied tables.

Word ids go through an embedding table and a recurrent layer into a `LargeOutput` over the same
words, with its own table (untied) or that of the embedding (tied), and with Keras's `Embedding`
or an `EmbeddingBag` of one id per position. All models take turns, step by step.
"""

import time

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

import tf_largeout as tflo
from benchmarks.harness import machine
from benchmarks.harness.files import write_json
from lab.shared.command_line import new_parser

_WARM_UP = 5
_BATCHES = 32


def main(arguments=None):
    """Measures the sizes of the command line and returns the report."""
    options = _parser().parse_args(arguments)
    rows = []
    for num_words in tqdm(options.num_words, desc="tied", unit="size"):
        rows.append({"num_words": num_words, **measure(num_words, options)})
        tqdm.write(_line(rows[-1]))
    shape = {name: getattr(options, name) for name in ("dim", "batch_size", "length")}
    report = {"machine": machine.describe(), **shape, "rows": rows}
    if options.json:
        write_json(options.json, report)
    return report


def measure(num_words, options):
    """Returns the median milliseconds per step of each model at one size."""
    rng = np.random.default_rng(0)
    shape = [_BATCHES, options.batch_size, options.length + 1]
    batches = rng.integers(num_words, size=shape)
    models = {
        f"{'tied' if tied else 'untied'}, {kind}": language_model(
            num_words, kind, tied, options
        )
        for kind in ("Embedding", "EmbeddingBag")
        for tied in (False, True)
    }
    milliseconds = {name: [] for name in models}
    for step in range(_WARM_UP + options.steps):
        batch = batches[step % _BATCHES]
        for name, model in models.items():
            start = time.perf_counter()
            model.train_on_batch(batch[:, :-1], batch[:, 1:])
            milliseconds[name].append(1e3 * (time.perf_counter() - start))
    return {name: float(np.median(values[_WARM_UP:])) for name, values in milliseconds.items()}


def language_model(num_words, kind, tied, options):
    """Returns a compiled model `[batch, length]` ids to logits `[batch, length, num_words]`."""
    ids = keras.Input([options.length], dtype="int64")
    if kind == "Embedding":
        table = keras.layers.Embedding(num_words, options.dim)
        features = table(ids)
    else:
        table = tflo.layers.EmbeddingBag(num_words, options.dim, padding_id=None)
        features = table(keras.ops.expand_dims(ids, -1))
    features = keras.layers.GRU(options.dim, return_sequences=True)(features)
    head = tflo.layers.LargeOutput(
        num_words,
        tflo.samplers.UniformSampler(options.num_sampled),
        embeddings=table if tied else None,
    )
    model = keras.Model(ids, head(features))
    model.compile(tflo.optimizers.LazyAdam(), tflo.losses.SampledSoftmaxLoss())
    tf.random.set_seed(0)
    return model


def _line(row):
    times = "  ".join(f"{name} {ms:.1f}" for name, ms in row.items() if name != "num_words")
    return f"{row['num_words']:>10,} words, ms per step: {times}"


def _parser():
    parser = new_parser("speed.tied", __doc__)
    parser.add_argument(
        "--num-words", type=int, nargs="+", default=[50_000, 200_000, 1_000_000]
    )
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--batch-size", type=int, default=16, help="sequences")
    parser.add_argument("--length", type=int, default=32, help="words of a sequence")
    parser.add_argument("--num-sampled", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=40, help="measured steps")
    parser.add_argument("--json", help="file for the figures")
    return parser


if __name__ == "__main__":
    main()
