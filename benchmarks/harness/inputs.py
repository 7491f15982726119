"""Inputs of models: an array, or a dict of arrays such as `ids` and `weights`."""

import keras
import tensorflow as tf


def num_examples(features):
    """Returns the number of examples."""
    return len(keras.tree.flatten(features)[0])


def examples_of(features, rows):
    """Returns some examples. `rows` is a slice or an array of indices."""
    return keras.tree.map_structure(lambda part: part[rows], features)


def as_tensors(features):
    """Converts NumPy arrays to tensors."""
    return keras.tree.map_structure(tf.constant, features)
