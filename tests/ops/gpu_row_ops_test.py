"""Steps of the optimizers on the GPU, compared with the CPU."""

import numpy as np
import pytest
import tensorflow as tf

from tests import gpu
from tf_largeout.ops import row_ops

pytestmark = pytest.mark.gpu

NUM_ROWS = 7


def adam(w, slots, values, ids):
    row_ops.row_adam(w, *slots[:2], values, ids, step_size=0.1, weight_decay=0.01)


def adam_with_decay(w, slots, values, ids):
    last_step = tf.Variable(tf.range(NUM_ROWS, dtype=tf.int64))
    row_ops.row_adam(w, *slots[:2], values, ids, 0.1, last_step=last_step, step=9)
    return last_step.read_value()


def adam_without_momentum(w, slots, values, ids):
    last_step = tf.Variable(tf.range(NUM_ROWS, dtype=tf.int64))
    row_ops.row_adam(w, None, slots[1], values, ids, 0.1, last_step=last_step, step=9)
    return last_step.read_value()


def adagrad(w, slots, values, ids):
    row_ops.row_adagrad(w, slots[0], values, ids, 0.1, weight_decay=0.01)


def rowwise_adagrad(w, slots, values, ids):
    row_ops.row_rowwise_adagrad(w, slots[2], values, ids, 0.1, weight_decay=0.01)


def momentum(w, slots, values, ids):
    row_ops.row_momentum(w, slots[0], values, ids, 0.1, weight_decay=0.01)


def nesterov(w, slots, values, ids):
    row_ops.row_momentum(w, slots[0], values, ids, 0.1, decay=0.8, nesterov=True)


def plain(w, slots, values, ids):
    row_ops.row_momentum(w, None, values, ids, 0.1)


STEPS = [
    adam,
    adam_with_decay,
    adam_without_momentum,
    adagrad,
    rowwise_adagrad,
    momentum,
    nesterov,
    plain,
]
each_step = pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)


def after(step, values, ids):
    """Returns a function that makes a step and returns weights and slots."""

    def compute():
        rng = np.random.default_rng(1)
        shapes = [values.shape[1:]] * 3 + [()]
        w, *slots = (
            tf.Variable(rng.uniform(0.5, 2, (NUM_ROWS, *shape)).astype("float32"))
            for shape in shapes
        )
        last_step = step(w, slots, values, ids)
        read = [variable.read_value() for variable in (w, *slots)]
        return read if last_step is None else [*read, last_step]

    return compute


def gradient_rows(n, shape, dtype="int64"):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(n, *shape)).astype("float32")
    return values, rng.integers(0, NUM_ROWS, n).astype(dtype)


@each_step
@pytest.mark.parametrize("shape", [(), (3,), (2, 17), (128,)], ids=str)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("n", [0, 1, 33, 5_000])
def test_a_step_equals_that_of_the_cpu(step, shape, dtype, n):
    gpu.assert_same_on_gpu(after(step, *gradient_rows(n, shape, dtype)), rtol=1e-4, atol=1e-4)


@each_step
@pytest.mark.parametrize("bad", [-1, NUM_ROWS, 2**40])
def test_rows_out_of_range_are_skipped(step, bad):
    values, ids = gradient_rows(50, (5,))
    expected = gpu.on_cpu(after(step, values, ids))
    values = np.insert(values, [0, 20, 50], 9.0, axis=0)
    ids = np.insert(ids, [0, 20, 50], bad)
    for got, want in zip(gpu.on_gpu(after(step, values, ids)), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_ids_are_not_checked():
    ids = gpu.on_gpu(lambda: row_ops.check_row_ids(tf.constant([0, 7, -1], tf.int64), 7))
    np.testing.assert_array_equal(ids, [[0, 7, -1]])


@pytest.mark.parametrize("shape", [(), (3,), (2, 17), (128,)], ids=str)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("n", [0, 1, 33, 5_000])
def test_merged_slices_come_first_and_the_others_are_empty(shape, dtype, n):
    values, ids = gradient_rows(n, shape, dtype)
    compute = lambda: row_ops.merge_rows(values, ids)  # noqa: E731
    sums, unique = gpu.on_cpu(compute)
    on_gpu_sums, on_gpu_ids = gpu.on_gpu(compute)
    u = len(unique)
    np.testing.assert_array_equal(on_gpu_ids[:u], unique)
    np.testing.assert_allclose(on_gpu_sums[:u], sums, rtol=1e-4, atol=1e-4)
    assert np.all(on_gpu_ids[u:] == -1)
    assert np.all(on_gpu_sums[u:] == 0)
