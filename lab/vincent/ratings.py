"""`python -m lab.vincent.ratings`: `examples/ratings.py` compared with a dense output layer.

Trains the example's model on MovieLens-100K twice, with a `FactoredOutput` and with a dense
layer of the same weights, loss and gradient descent, and compares the losses. Measures a step
of both models with more items, without ratings. Trains the example with several splits and
ranks the held-out films.
"""

import argparse
import contextlib
import importlib.util
import io
import itertools
import pathlib
import time

import keras
import numpy as np
import tensorflow as tf

from benchmarks.harness import machine
from lab.shared.command_line import new_parser
from lab.shared.kept_runs import KeptRuns
from tf_largeout import datasets, losses, optimizers

_EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "ratings.py"
_LAYERS = ("factored", "dense")
_DIM, _BATCH_SIZE, _RATE, _WEIGHT = 64, 64, 0.2, 0.3
_WARM_UP = 3  # steps


class DenseSquaredError(keras.losses.Loss):
    """`SquaredErrorLoss` computed from the logits and targets of all classes."""

    def __call__(self, y_true, y_pred, sample_weight=None):
        targets = tf.sparse.to_dense(y_true)
        weights = tf.where(targets != 0, 1.0, _WEIGHT)
        return tf.reduce_mean(tf.reduce_sum(weights * (y_pred - targets) ** 2, axis=-1))


class _Steps(keras.callbacks.Callback):
    """Measures the processor time of each step."""

    def __init__(self):
        super().__init__()
        self.cpu_ms = []

    def on_train_batch_begin(self, batch, logs=None):
        self._start = time.process_time()

    def on_train_batch_end(self, batch, logs=None):
        self.cpu_ms.append(1e3 * (time.process_time() - self._start))


def example():
    """Returns the module `examples/ratings.py`."""
    spec = importlib.util.spec_from_file_location("ratings_example", _EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def model_with(layer, num_items):
    """Returns the example's compiled model, with a layer of `_LAYERS` as its output.

    Both train with gradient descent, have the same initial weights, and no dropout.
    """
    keras.utils.set_random_seed(0)
    model = example().build_model(num_items, _DIM, _RATE, dropout=0.0)
    loss = losses.SquaredErrorLoss(unobserved_weight=_WEIGHT)
    if layer == "dense":
        output = keras.layers.Dense(num_items, kernel_initializer="zeros")
        model = keras.Model(model.inputs, output(model.layers[-1].input))
        loss = DenseSquaredError()
    model.compile(optimizers.LazySGD(_RATE), loss)
    return model


def curve(layer, epochs):
    """Returns the loss of each epoch."""
    machine.use("cpu", 1)
    module = example()
    stars, _ = module.hold_out(datasets.ml_100k_ratings())
    model = model_with(layer, stars.shape[1])
    fitted = model.fit(module.bags(stars), stars, _BATCH_SIZE, epochs, shuffle=False, verbose=0)
    return {"layer": layer, "losses": fitted.history["loss"]}


def step(layer, num_items, steps):
    """Returns the median processor time of a step with `num_items` items."""
    machine.use("cpu", 1)
    module = example()
    stars, _ = module.hold_out(datasets.ml_100k_ratings())
    num_items = max(num_items, stars.shape[1])
    stars = tf.SparseTensor(stars.indices, stars.values, [stars.shape[0], num_items])
    pairs = tf.data.Dataset.from_tensor_slices((module.bags(stars), stars))
    batches = pairs.batch(_BATCH_SIZE, drop_remainder=True).repeat().prefetch(1)
    clock = _Steps()
    model_with(layer, num_items).fit(
        batches, steps_per_epoch=_WARM_UP + steps, callbacks=[clock], shuffle=False, verbose=0
    )
    return {"layer": layer, "cpu_ms": float(np.median(clock.cpu_ms[_WARM_UP:]))}


def held_out(weight, seed, epochs):
    """Trains the example with a split of its own; returns its metrics, and popularity's."""
    machine.use("cpu", 1)
    keras.utils.set_random_seed(seed)
    module = example()
    stars, test = module.hold_out(datasets.ml_100k_ratings(), seed=seed)
    settings = {"dim": _DIM, "batch_size": _BATCH_SIZE, "epochs": epochs}
    rates = {"learning_rate": 3e-3, "class_rate": 0.3, "unobserved_weight": weight}
    started = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()):
        model = module.train(stars, argparse.Namespace(**settings, **rates))
        cpu_seconds = time.process_time() - started
        found = module.evaluate(model, stars, test)
    return {
        "ndcg": found["ndcg_at_10"],
        "recall": found["recall_at_10"],
        "cpu_seconds": cpu_seconds,
        "popularity": ndcg_of_popularity(
            tf.sparse.to_dense(stars).numpy(), tf.sparse.to_dense(test).numpy() >= module.LIKED
        ),
    }


def ndcg_of_popularity(stars, liked, k=10):
    """Returns the NDCG if each user gets the most rated of the films that they have not rated.

    Args:
        stars: `[users, items]`, the ratings in training.
        liked: bool `[users, items]`.
        k: length of a ranking.
    """
    scores = np.where(stars > 0, -1, (stars > 0).sum(axis=0))
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    gains = 1 / np.log2(np.arange(2, k + 2))
    number = liked.sum(axis=1)
    ideal = np.cumsum(gains)[np.clip(number, 1, k) - 1]
    found = (np.take_along_axis(liked, best, axis=1) * gains).sum(axis=1) / ideal
    return float(found[number > 0].mean())


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    kept = KeptRuns(options.out, options.json or f"{options.out}/ratings.json", _line)
    for layer in _LAYERS:
        kept.add(
            ["curve", layer, options.epochs], {"kind": "curve"}, curve, layer, options.epochs
        )
    for items, layer in itertools.product(options.num_items, _LAYERS):
        settings = {"kind": "step", "num_items": items}
        kept.add(["step", layer, items], settings, step, layer, items, options.steps)
    for seed, weight in itertools.product(options.seeds, options.weights):
        settings = {"kind": "held out", "weight": weight, "seed": seed}
        words = ["held_out", weight, seed, options.epochs]
        kept.add(words, settings, held_out, weight, seed, options.epochs)
    return kept.report


def _line(run):
    return ", ".join(f"{key} {value}" for key, value in run.items())


def _parser():
    parser = new_parser("vincent.ratings", __doc__)
    add = parser.add_argument
    add("--epochs", type=int, default=40)
    add("--num-items", type=int, nargs="+", default=[1_682, 100_000, 1_000_000])
    add("--steps", type=int, default=8, help="measured steps")
    add("--seeds", type=int, nargs="+", default=[1, 2, 3], help="of split and weights")
    add("--weights", type=float, nargs="+", default=[0.3, 1.0], help="unobserved weights")
    add("--out", default="benchmark-results/ratings", help="directory of the figures")
    add("--json", help="file for the figures of all runs")
    return parser


if __name__ == "__main__":
    main()
