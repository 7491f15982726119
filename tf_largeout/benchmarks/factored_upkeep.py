"""What it costs to keep the factors of a `FactoredOutput` sound while it learns.

Now and then a step looks at the singular values of U and inverts it anew, and where one is out
of range it passes over all classes. Their share of a training is what its steps take on average
above their median.
"""

import time

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.benchmarks.factored_heads import FACTORED_HEADS

_PLACES = 8192  # around which the features of a class lie
_NOISE = 0.3
_WARM_UP = 5
_BATCH_OF_RATES = 1024  # for which FACTORED_HEADS has its learning rates


def upkeep(name, shape, steps):
    """Processor time of steps at the learning rate of a head of `FACTORED_HEADS`, as a dict.

    Args:
        name: of the head, whose rate is divided as the batch is smaller than its 1,024.
        shape: `factored_case.Shape`.
        steps: how many.
    """
    head = FACTORED_HEADS[name]
    rate = head.class_rate * shape.batch_size / _BATCH_OF_RATES
    layers = head.layers(shape.num_classes, rate)
    model = keras.Sequential([keras.Input([shape.dim]), *layers])
    step = _step(model, head.loss())
    seconds = []
    for features, labels in _batches(shape, _WARM_UP + steps):
        start = time.process_time()
        step(features, labels)
        seconds.append(time.process_time() - start)
    mean, median = np.mean(seconds[_WARM_UP:]), np.median(seconds[_WARM_UP:])
    return {"cpu_ms": 1e3 * median, "rate": rate, "steps": steps, "upkeep": 1 - median / mean}


def _step(model, loss):
    @tf.function
    def step(features, labels):
        with tf.GradientTape() as tape:
            value = loss(labels, model(features, training=True))
        return tape.gradient(value, model.trainable_variables)

    return step


def _batches(shape, count):
    """Features around a place for each class, and the classes."""
    random = np.random.default_rng(0)
    places = random.standard_normal([_PLACES, shape.dim], np.float32)
    for _ in range(count):
        labels = random.integers(shape.num_classes, size=shape.batch_size)
        noise = random.standard_normal([shape.batch_size, shape.dim], np.float32)
        yield tf.constant(places[labels % _PLACES] + _NOISE * noise), tf.constant(labels)
