"""The cost of stabilising the factors of a `FactoredOutput` during training.

After each step the layer checks U. If a direction has left its range, it makes a fold, which
later steps apply to the rows that they read. Every 256 steps it inverts U again. If there is no
room for another fold, one pass applies all folds to all classes. The cost is the mean time of
the steps above the median of the steps before the first fold, plus each step's part of a pass,
even if the training is too short for a pass.
"""

import time

import keras
import numpy as np
import tensorflow as tf

from lab.shared.factored_heads import FACTORED_HEADS
from tf_largeout.papers.factored.factored_output_ops import factored_output_take_folds

_PLACES = 8192  # number of points around which the features of a class lie
_NOISE = 0.3
_WARM_UP = 5
_LEAST_ROOM = 5  # free rows of the log: with fewer, a step takes all folds


def upkeep(name, shape, steps):
    """Returns CPU times of steps at the learning rate of a head of `FACTORED_HEADS`, as a dict.

    Args:
        name: name of the head.
        shape: `factored_case.Shape`.
        steps: number of steps.
    """
    head = FACTORED_HEADS[name]
    rate = head.rate_for(shape.batch_size)
    layers = head.layers(shape.num_classes, rate)
    model = keras.Sequential([keras.Input([shape.dim]), *layers])
    step, state = _step(model, head.loss()), model.layers[-1].class_matrix.state
    seconds, folds = [], []
    for features, labels in _batches(shape, _WARM_UP + steps):
        start = time.process_time()
        step(features, labels)
        seconds.append(time.process_time() - start)
        folds.append(int(state.folds.value[0, 0]))
    report = {"rate": rate, "steps": steps}
    report |= _shares(np.array(seconds), np.array(folds), state)
    return report


def _shares(seconds, folds, state):
    """Returns figures of the training steps, and of a pass over the classes after them.

    Args:
        seconds: CPU seconds of each step.
        folds: Number of logged folds after each step.
        state: `FactoredState`.
    """
    changes = np.diff(folds, prepend=0)
    made = np.where(changes < 0, folds, changes).sum()
    passes = (changes < 0).sum()
    first = np.argmax(folds > 0) if made else len(folds)
    median = np.median(seconds[_WARM_UP:first])
    mean = np.mean(seconds[_WARM_UP:])
    start = time.process_time()
    factored_output_take_folds(state)
    of_pass = time.process_time() - start
    if not passes:
        mean += of_pass * made / len(folds) / (state.folds.shape[0] - _LEAST_ROOM)
    return {
        "cpu_ms": 1e3 * median,
        "cpu_ms_after": 1e3 * np.median(seconds[first:]) if made else None,
        "folds": int(made),
        "places": state.folds.shape[0] - 1,
        "passes": int(passes),
        "pass_cpu_ms": 1e3 * of_pass,
        "upkeep": 1 - median / mean,
    }


def _step(model, loss):
    @tf.function
    def step(features, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(features, training=True))
        return tape.gradient(value, model.trainable_variables)

    return step


def _batches(shape, count):
    """Yields features around a point for each class, and the classes."""
    random = np.random.default_rng(0)
    places = random.standard_normal([_PLACES, shape.dim], np.float32)
    for _ in range(count):
        labels = random.integers(shape.num_classes, size=shape.batch_size)
        noise = random.standard_normal([shape.batch_size, shape.dim], np.float32)
        yield tf.constant(places[labels % _PLACES] + _NOISE * noise), tf.constant(labels)
