"""Exact precision and loss from a model's full logits, in plain TensorFlow.

It shares nothing with the losses and metrics of this package, so that a comparison does not
depend on the code that it compares. It only requires that a model returns its logits.
"""

import time
import weakref

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.layers import FactoredOutput

CUTOFFS = (1, 3, 5)
PROPENSITY_A, PROPENSITY_B = 0.55, 1.5  # the paper's for most data sets
_STEPS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # traced once a model


def evaluate(
    model,
    features,
    labels,
    label_counts=None,
    num_examples=None,
    batch_size=128,
    score=tf.identity,
):
    """Returns the precision and the full softmax loss of `model` on a sample of the test split.

    Args:
        model: function of features that returns logits [batch, num_classes].
        features: array of the model's inputs, one entry per example, or a dict of such arrays.
        labels: int64 [examples] or [examples, max_labels], padded with -1, without repeats in
            an example.
        label_counts: [num_classes], training examples of each class; None for no PSP.
        num_examples: number of all training examples. By default the sum of the counts, which
            is correct if each example has one label.
        batch_size: number of examples whose logits are in memory at a time.
        score: function of logits. Its values rank the classes, and their softmax gives the
            loss.

    Returns: dict with `p1`, `p3`, `p5` in per cent (an example with one label has a P@5 of at
        most 20), `top5`, the share with a label among the best five, and `loss` in nats, for
        which all labels of an example have the same weight. With `label_counts` also `psp1`,
        `psp3`, `psp5` in per cent, see `propensity_scored_precision`.
    """
    labels = np.reshape(np.asarray(labels, np.int64), [len(labels), -1])
    batches = []
    step = _STEPS.setdefault(model, _step(model, score))
    for start in range(0, len(labels), batch_size):
        rows = slice(start, start + batch_size)
        inputs = as_tensors(examples_of(features, rows))
        batch = step(inputs, tf.constant(labels[rows]))
        batches.append([part.numpy() for part in batch])
    best, losses = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    figures = rank_figures(best, labels, label_counts, num_examples)
    return {**figures, "loss": float(np.mean(losses))}


def rank_figures(best, labels, label_counts=None, num_examples=None):
    """Like `evaluate`, without the loss, for given classes.

    Args:
        best: int64 `[examples, k]` with k up to 5, classes by falling score, padded with -1.
        labels: int64 `[examples, max_labels]`, padded with -1, without duplicates per example.
        label_counts: As in `evaluate`.
        num_examples: As in `evaluate`.
    """
    hits = np.any(best[:, :, None] == np.where(labels < 0, -2, labels)[:, None, :], axis=-1)
    figures = {f"p{k}": 100.0 * float(np.mean(hits[:, :k])) for k in CUTOFFS}
    figures["top5"] = 100.0 * float(np.mean(hits.any(axis=1)))
    if label_counts is None:
        return figures
    inverse = inverse_propensities(label_counts, num_examples)
    return {**figures, **propensity_scored_precision(best, hits, labels, inverse)}


def inverse_propensities(label_counts, num_examples=None):
    """Returns `1 + C (N_l + b)^-a` of each class, `C = (log N - 1) (b + 1)^a`.

    Jain et al. 2016, "Extreme multi-label loss functions", equation 4.1, with N_l training
    examples of class l among N, by default the sum of the counts.
    """
    counts = np.asarray(label_counts, np.float64)
    num_examples = counts.sum() if num_examples is None else num_examples
    scale = (np.log(num_examples) - 1) * (PROPENSITY_B + 1) ** PROPENSITY_A
    return 1 + scale * (counts + PROPENSITY_B) ** -PROPENSITY_A


def propensity_scored_precision(best, hits, labels, inverse):
    """Returns `psp1`, `psp3`, `psp5`: weight of the hits in per cent of its maximum.

    Args:
        best: int64 [examples, k], classes by falling logit.
        hits: [examples, k], 1 where `best` is a label.
        labels: int64 [examples, max_labels], padded with -1.
        inverse: float64 [num_classes], `inverse_propensities`.
    """
    gains = hits * inverse[best]
    possible = np.where(labels >= 0, inverse[np.maximum(labels, 0)], 0.0)
    possible = np.sort(possible, axis=1)[:, ::-1]
    return {
        f"psp{k}": 100.0 * float(gains[:, :k].sum() / possible[:, :k].sum()) for k in CUTOFFS
    }


def _step(model, score):
    model = weakref.proxy(model)
    return tf.function(
        lambda x, y: _batch_figures(model, score, x, y), reduce_retracing=True, autograph=False
    )


def _batch_figures(model, score, features, labels):
    scores = score(tf.cast(model(features, training=False), tf.float32))
    present = labels >= 0
    _, best = tf.math.top_k(scores, k=min(max(CUTOFFS), scores.shape[-1]))
    partition = tf.reduce_logsumexp(scores, axis=1)
    true = tf.gather(scores, tf.maximum(labels, 0), batch_dims=1)
    mass = tf.cast(present, tf.float32)
    true = tf.reduce_sum(true * mass, axis=1) / tf.reduce_sum(mass, axis=1)
    return tf.cast(best, tf.int64), partition - true


def num_examples(features):
    """Returns the number of examples."""
    return len(keras.tree.flatten(features)[0])


def examples_of(features, rows):
    """Returns some examples. `rows` is a slice or an array of indices."""
    return keras.tree.map_structure(lambda part: part[rows], features)


def as_tensors(features):
    """Converts NumPy arrays to tensors."""
    return keras.tree.map_structure(tf.constant, features)


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
