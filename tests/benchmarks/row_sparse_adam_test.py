import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks.methods.optimizers import RowSparseAdam


@pytest.mark.parametrize("shape", [[4, 3], [4]])
def test_touched_rows_move_as_in_adam_and_others_stay(shape):
    start = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    variable, twin = keras.Variable(start), keras.Variable(start)
    sparse, dense = RowSparseAdam(0.1), keras.optimizers.Adam(0.1)
    values = np.random.default_rng(1).standard_normal([3, *shape[1:]]).astype(np.float32)
    ids = [2, 0, 2]
    merged = np.zeros(shape, np.float32)
    np.add.at(merged, ids, values)
    for _ in range(3):
        sparse.apply([tf.IndexedSlices(tf.constant(values), tf.constant(ids))], [variable])
        dense.apply([tf.constant(merged)], [twin])
    touched = [0, 2]
    np.testing.assert_allclose(variable.numpy()[touched], twin.numpy()[touched], rtol=1e-5)
    np.testing.assert_array_equal(variable.numpy()[[1, 3]], start[[1, 3]])


def test_dense_gradients_take_ordinary_adam_steps():
    variable, twin = keras.Variable([1.0, -2.0]), keras.Variable([1.0, -2.0])
    ours, keras_adam = RowSparseAdam(0.1), keras.optimizers.Adam(0.1)
    for step in range(3):
        gradient = tf.constant([0.5, step - 1.0])
        ours.apply([gradient], [variable])
        keras_adam.apply([gradient], [twin])
    np.testing.assert_allclose(variable.numpy(), twin.numpy(), rtol=1e-5)
