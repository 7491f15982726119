import numpy as np
import pytest
import tensorflow as tf

from tf_largeout import ops

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-7


@pytest.mark.parametrize("shape", [(), (1,), (7, 5), (300, 129)], ids=str)
def test_a_step_is_bit_identical_to_separate_operations(for_all_simd_levels, shape):
    rng = np.random.default_rng(0)
    start = [rng.normal(size=shape), rng.normal(size=shape), rng.uniform(size=shape)]
    w, m, v = (tf.Variable(np.float32(x)) for x in start)
    own = [tf.Variable(x) for x in (w, m, v)]
    for _ in range(3):
        g = tf.constant(np.float32(rng.normal(size=shape)))
        m.assign_add((g - m) * (1 - BETA_1))
        v.assign_add((tf.square(g) - v) * (1 - BETA_2))
        w.assign_sub(m * 0.01 / (tf.sqrt(v) + EPSILON))
        ops.dense_adam(*own, g, 0.01, BETA_1, BETA_2, EPSILON)
    for found, expected in zip(own, (w, m, v), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_values_read_before_a_step_do_not_change():
    variable, m, v = (tf.Variable(tf.ones([40])) for _ in range(3))
    before = variable.read_value()
    ops.dense_adam(variable, m, v, tf.ones([40]), 0.1)
    np.testing.assert_array_equal(before, np.ones(40))
    assert (variable.numpy() < 1).all()


def test_errors_state_the_received_value_and_change_nothing():
    w, m, v = (tf.Variable(tf.ones([4])) for _ in range(3))
    with pytest.raises(tf.errors.InvalidArgumentError, match="an optimizer slot"):
        ops.dense_adam(w, tf.Variable(tf.ones([5])), v, tf.ones([4]), 0.1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="the variable"):
        ops.dense_adam(w, m, v, tf.ones([2, 2]), 0.1)
    with pytest.raises(tf.errors.InvalidArgumentError):
        ops.dense_adam(w, w, v, tf.ones([4]), 0.1)
    np.testing.assert_array_equal(w, np.ones(4))
