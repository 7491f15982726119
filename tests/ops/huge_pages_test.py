"""The first update of rows requests huge pages for a large variable."""

import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tf_largeout import layers, losses
from tf_largeout.ops import row_ops

MIB = 2**20
SMAPS = pathlib.Path("/proc/self/smaps")
ENABLED = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")

pytestmark = pytest.mark.skipif(
    not (SMAPS.exists() and ENABLED.exists()), reason="no Linux with huge pages"
)


def uses_huge_pages(variable):
    """Returns whether huge pages were requested, for the middle of a variable's memory."""
    address = np.frombuffer(memoryview(variable.read_value()), np.uint8).ctypes.data
    address += variable.shape.num_elements() * 2
    inside = False
    for line in SMAPS.read_text().splitlines():
        name, *rest = line.split()
        if not name.endswith(":"):
            begin, end = (int(place, 16) for place in name.split("-"))
            inside = begin <= address < end
        elif inside and name == "VmFlags:":
            return "hg" in rest
    raise AssertionError("the variable is in no mapping")


def updated(mib):
    """Returns a variable of `mib` MiB after an update of two rows, and its expected value."""
    values = np.arange(mib * MIB // 4, dtype="f4").reshape(-1, 64)
    variable = tf.Variable(values)
    row_ops.row_momentum(variable, None, np.ones([3, 64], "f4"), [3, 0, 3], 0.5)
    values[0] -= 0.5
    values[3] -= 1.0
    return variable, values


def test_the_first_update_requests_huge_pages_and_changes_no_value():
    variable, expected = updated(mib=64)
    assert uses_huge_pages(variable)
    np.testing.assert_array_equal(variable, expected)
    row_ops.row_momentum(variable, None, np.ones([1, 64], "f4"), [5], 0.5)
    expected[5] -= 0.5
    np.testing.assert_array_equal(variable, expected)


def test_no_huge_pages_are_requested_for_a_small_variable():
    variable, expected = updated(mib=15)
    np.testing.assert_array_equal(variable, expected)


@pytest.mark.slow
def test_the_first_step_of_a_factored_layer_requests_huge_pages():
    layer = layers.FactoredOutput(70_000, 0.1)
    layer.build([None, 64])
    with tf.GradientTape() as tape:
        logits = layer(tf.ones([2, 64]), training=True)
        loss = losses.TaylorSoftmaxLoss()(tf.constant([3, 5]), logits)
    tape.gradient(loss, layer.trainable_variables)
    assert uses_huge_pages(layer.class_matrix.state.vectors.value)
