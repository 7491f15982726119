"""Small models, as new users write them, with mistakes in the arguments."""

import keras
import numpy as np
import tensorflow as tf

import tf_largeout as tflo

N = 20
X, Y = np.ones((4, 3), "float32"), np.arange(4)
STRINGS = tf.constant(["a", "b", "c", "d"])


def compiled(
    optimizer="lazy_adam", loss="sampled_softmax_loss", last=(), metrics=None, **kwargs
):
    head = tflo.layers.LargeOutput(N, **({"sampler": "uniform"} | kwargs))
    model = keras.Sequential([keras.Input([3]), head, *last])
    # Eager, because this is faster here, except for one optimizer.
    model.compile(optimizer, loss, metrics=metrics, run_eagerly=optimizer != "adam")
    return model


def fitted(y=Y, **kwargs):
    model = compiled(**kwargs)
    model.fit(X, y, verbose=0)
    return model


def factored(y, metrics=None):
    model = keras.Sequential([keras.Input([3]), tflo.layers.FactoredOutput(N, 0.1)])
    model.compile("lazy_adam", tflo.losses.SquaredErrorLoss(), metrics=metrics)
    model.fit(X, y, verbose=0)


def tower():
    return tflo.layers.ItemTower(np.ones([N, 2]), keras.layers.Dense(3))


def two_outputs():
    inputs = keras.Input([3])
    heads = [tflo.layers.LargeOutput(N, name=name)(inputs) for name in ("first", "second")]
    return keras.Model(inputs, heads)
