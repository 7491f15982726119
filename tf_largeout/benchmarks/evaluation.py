"""Exact precision and loss from a model's full logits, in plain TensorFlow.

It shares nothing with the losses and metrics of this package, so that a comparison of methods
does not rest on the code it compares; and it asks of a model only that it returns its logits.
"""

import weakref

import numpy as np
import tensorflow as tf

CUTOFFS = (1, 3, 5)
_STEPS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # traced once a model


def evaluate(model, features, labels, batch_size=128):
    """P@1, P@3, P@5 and the full softmax loss of `model` on a sample of the test split.

    Args:
        model: called on features, returns logits [batch, num_classes].
        features: array of the model's inputs, one row an example.
        labels: int64 [examples] or [examples, max_labels], padded with -1.
        batch_size: rows whose logits are held at a time.

    Returns:
        dict with `p1`, `p3`, `p5` in per cent (an example with one label reaches a P@5 of 20),
        `top5`, the share with a label among the best five, and `loss` in nats; the target mass
        of an example is spread evenly over its labels.
    """
    labels = np.reshape(np.asarray(labels, np.int64), [len(features), -1])
    hits, losses = [], []
    step = _STEPS.setdefault(model, _step(model))
    for start in range(0, len(features), batch_size):
        rows = slice(start, start + batch_size)
        batch_hits, batch_losses = step(tf.constant(features[rows]), tf.constant(labels[rows]))
        hits.append(batch_hits.numpy())
        losses.append(batch_losses.numpy())
    hits = np.concatenate(hits)
    figures = {f"p{k}": 100.0 * float(np.mean(hits[:, :k])) for k in CUTOFFS}
    figures["top5"] = 100.0 * float(np.mean(hits.any(axis=1)))
    return {**figures, "loss": float(np.mean(np.concatenate(losses)))}


def _step(model):
    model = weakref.proxy(model)
    return tf.function(
        lambda x, y: _batch_figures(model, x, y), reduce_retracing=True, autograph=False
    )


def _batch_figures(model, features, labels):
    logits = tf.cast(model(features, training=False), tf.float32)
    present = labels >= 0
    _, best = tf.math.top_k(logits, k=min(max(CUTOFFS), logits.shape[-1]))
    best = tf.cast(best, tf.int64)
    hits = tf.reduce_any(best[:, :, None] == labels[:, None, :], axis=-1)
    # log of the partition function by one pass less than reduce_logsumexp
    largest = tf.gather(logits, best[:, 0], batch_dims=1)
    partition = largest + tf.math.log(tf.reduce_sum(tf.exp(logits - largest[:, None]), axis=1))
    true = tf.gather(logits, tf.maximum(labels, 0), batch_dims=1)
    mass = tf.cast(present, tf.float32)
    true = tf.reduce_sum(true * mass, axis=1) / tf.reduce_sum(mass, axis=1)
    return tf.cast(hits, tf.float32), partition - true
