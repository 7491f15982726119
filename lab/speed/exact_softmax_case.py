"""The problem and the models of `lab.speed.exact_softmax`, each in its own process."""

import dataclasses
import os
import time

import keras
import numpy as np
import tensorflow as tf

from benchmarks.harness import machine, tasks
from benchmarks.harness.training import ENDLESS, TrainingClock
from benchmarks.methods.method_table import METHODS
from benchmarks.methods.models import encoder_of
from tf_largeout import layers, losses, optimizers

# Arguments of the loss, and the optimizer; None is Keras's `Dense`.
VARIANTS = {
    "Keras Dense + Adam": (None, keras.optimizers.Adam),
    "SoftmaxLoss + Keras Adam": ({}, keras.optimizers.Adam),
    "SoftmaxLoss": ({}, optimizers.LazyAdam),
    "SoftmaxLoss, bfloat16": ({"compute_dtype": "bfloat16"}, optimizers.LazyAdam),
}
LEFT_OUT = (1e-3, 1e-2, 1e-1)
_BATCHES = 8
_RATE = 1e-6  # so small that the measured steps do not change the weights noticeably
_TILE_CLASSES, _TILE_ROWS = 96, 64


@dataclasses.dataclass(frozen=True)
class Problem:
    """Where the problem is stored, and how it is made.

    Attributes:
        path: Path of the arrays, see `save_problem`.
        task: Key of `TASKS`, whose examples have one label.
        batch_size: Batch size of the steps.
        seconds: Seconds of training, by the method "recommended".
    """

    path: str
    task: str
    batch_size: int
    seconds: float


def save_problem(problem):
    """Trains, and writes the inputs of the output layer, the labels and the classes."""
    keras.utils.set_random_seed(0)
    task = tasks.load(problem.task, 512)
    method = METHODS["recommended"]
    model = method.model(task, method.settings_for(problem.task))
    clock = TrainingClock(problem.seconds, problem.seconds, lambda *_: {}, anneal=1.0)
    model.fit(task.train, steps_per_epoch=ENDLESS, callbacks=[clock], shuffle=False, verbose=0)
    features, labels = task.test_sample(_BATCHES * problem.batch_size)
    encoded, output = encoder_of(model)(features).numpy(), model.layers[-1]
    embeddings = output.class_embeddings().numpy()
    bias = output.bias.numpy()
    np.savez(problem.path, features=encoded, labels=labels, embeddings=embeddings, bias=bias)
    loss = model.evaluate(features, labels, batch_size=problem.batch_size, verbose=0)
    logits = encoded[: problem.batch_size] @ embeddings.T + bias
    return {
        **dataclasses.asdict(problem),
        "num_classes": task.num_classes,
        "dim": embeddings.shape[1],
        "trained_loss": loss,
        "left_out": {str(mass): shares_left_out(logits, mass) for mass in LEFT_OUT},
    }


def shares_left_out(logits, mass):
    """Returns the shares of the gradient's tiles that can be omitted.

    For each 64 rows, tiles are omitted in rising order of their largest probability in a row,
    while the omitted probability of each row is at most `mass`.

    Args:
        logits: `[rows, num_classes]`; the last group may have fewer than 64 rows.
        mass: between 0 and 1.

    Returns:
        Two numbers: for rows in the given order, and for rows sorted by decreasing probability
        of their best class.
    """
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    of_tile = np.add.reduceat(p, np.arange(0, p.shape[1], _TILE_CLASSES), axis=1)
    orders = np.arange(len(p)), np.argsort(-p.max(1))
    return [_share_left_out(of_tile[order], mass) for order in orders]


def _share_left_out(of_tile, mass):
    shares = []
    for first in range(0, len(of_tile), _TILE_ROWS):
        rows = of_tile[first : first + _TILE_ROWS]
        sums = rows[:, np.argsort(rows.max(0))].cumsum(1)
        shares.append(np.mean(sums.max(0) <= mass))
    return float(np.mean(shares))


def figures(problem, cores, rounds):
    """Returns the median ms per step of each of `VARIANTS`, and the limits of the machine."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-cores:])
    tf.config.threading.set_intra_op_parallelism_threads(cores)
    arrays = np.load(problem.path)
    models = {name: _model(name, arrays["embeddings"], arrays["bias"]) for name in VARIANTS}
    times = _times(models, arrays["features"], arrays["labels"], problem, rounds)
    rows = []
    for name, seconds in times.items():
        low, median, high = 1e3 * np.percentile(seconds, [10, 50, 90])
        rows.append({"variant": name, "ms": median, "ms_10": low, "ms_90": high})
    limits = {
        "gb_per_s": machine.memory_bandwidth(),
        "float32": machine.matrix_rate(),
        "bfloat16": machine.matrix_rate(dtype="bfloat16"),
    }
    return {"cores": cores, "rounds": rounds, "limits": limits, "rows": rows}


def _model(name, embeddings, bias):
    options, optimizer = VARIANTS[name]
    num_classes, dim = embeddings.shape
    if options is None:
        output, loss = keras.layers.Dense(num_classes), _cross_entropy()
        weights = [embeddings.T, bias]
    else:
        output, loss = layers.LargeOutput(num_classes), losses.SoftmaxLoss(**options)
        weights = [embeddings, bias]
    encoder = keras.layers.Dense(dim, kernel_initializer="identity")  # to pass a gradient on to
    model = keras.Sequential([keras.Input([dim]), encoder, output])
    output.set_weights(weights)
    model.compile(optimizer(_RATE), loss, jit_compile=False)
    return model


def _cross_entropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _times(models, features, labels, problem, rounds):
    """Returns the seconds of each step by model, without the first, which traces the graph."""
    times = {name: [] for name in models}
    for turn in range(rounds + 1):
        first = turn % _BATCHES * problem.batch_size
        rows = slice(first, first + problem.batch_size)
        batch = tf.constant(features[rows]), tf.constant(labels[rows])
        for name, model in models.items():
            start = time.perf_counter()
            model.train_on_batch(*batch)
            machine.finish()
            if turn:
                times[name].append(time.perf_counter() - start)
    return times
