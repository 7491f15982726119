"""The cost of predictions: milliseconds per query, and the size of the model."""

import time

import keras
import numpy as np
import tensorflow as tf

from benchmarks.harness.inputs import as_tensors, examples_of, num_examples
from tf_largeout.layers import FactoredOutput

QUERY_BATCHES = (1, 64)
_K = 5
_WARM_UP = 3


def query_milliseconds(top_k, features, seconds=1.0):
    """Returns the CPU milliseconds per query for several batch sizes, by size as text.

    On one core, this is the time of a query. Unlike wall time, it does not depend on other
    programs.

    Args:
        top_k: called with features `[n, ...]` and `k`; returns the results as NumPy arrays.
        features: array of examples, at least as many as in the largest batch, or a dict of
            such arrays.
        seconds: CPU seconds to measure for each batch size.
    """
    return {str(size): _milliseconds(top_k, features, size, seconds) for size in QUERY_BATCHES}


def keras_top_k(model):
    """Returns the best classes, by `top_k` of the last layer or else from all logits."""
    output = model.layers[-1]
    if hasattr(output, "top_k") and hasattr(model, "inputs"):
        encoder = keras.Model(model.input, output.input)
        ask = tf.function(lambda x: output.top_k(encoder(x), _K)[1], reduce_retracing=True)
    else:
        ask = tf.function(lambda x: tf.math.top_k(model(x), _K)[1], reduce_retracing=True)
    return lambda features, k: ask(as_tensors(features)).numpy()[:, :k]


def answer_mb(model):
    """Returns the MiB of the weights for predictions, without the state of samplers."""
    weights = [
        *model.trainable_variables,
        *(
            w
            for layer in model.layers
            if isinstance(layer, FactoredOutput)
            for w in layer.weights
        ),
    ]
    return sum(np.prod(w.shape) * tf.as_dtype(w.dtype).size for w in weights) / 2**20


def _milliseconds(top_k, features, size, seconds):
    calls, start = 0, None
    while start is None or time.process_time() - start < seconds:
        if calls == _WARM_UP and start is None:
            calls, start = 0, time.process_time()
        first = size * calls % (num_examples(features) - size + 1)
        top_k(examples_of(features, slice(first, first + size)), _K)
        calls += 1
    return 1e3 * (time.process_time() - start) / (calls * size)
