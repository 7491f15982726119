"""Ids of rows of tables with more than 2^31 numbers, without the memory of such a table."""

import importlib

import pytest
import tensorflow as tf

from tf_largeout.ops import stock

ROWS, DIM = 2**25, 128  # 2^32 numbers


def _gradient(dtype):
    return tf.zeros([3, DIM]), tf.constant([0, ROWS - 1, ROWS - 1], dtype)


def _adam(table, slot, dtype):
    rates = 1, 0.1, 0.9, 0.9, 1e-7, 0.0
    step, *rest = tf.constant(rates[0], tf.int64), *rates[1:]
    stock.largeout_row_adam(table, [], slot, [], *_gradient(dtype), step, *rest, [])


def _dots(table, _, dtype):
    ids = tf.constant([[0], [ROWS - 1]], tf.int64)
    features = tf.zeros([2, DIM])
    with tf.GradientTape() as tape:
        tape.watch(features)
        logits = stock.largeout_row_dots(features, table, [], ids, ids[:, 0])[0]
    return tape.gradient(logits, features)


def _scan(table, _, dtype):
    return stock.largeout_class_top_k(tf.zeros([2, DIM]), table, [], [], [], 5)


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
@pytest.mark.parametrize("function", [_adam, _dots, _scan])
def test_ids_of_large_tables_have_64_bits(function, dtype):
    variables = importlib.import_module("tensorflow.python.ops.resource_variable_ops")
    table, slot = (
        variables.UninitializedVariable(shape=[ROWS, DIM], dtype=tf.float32) for _ in range(2)
    )

    @tf.function
    def step():
        function(table.handle, slot.handle, dtype)

    definition = step.get_concrete_function().graph.as_graph_def()  # traced, but not run
    nodes = [*definition.node]
    for one in definition.library.function:
        nodes += one.node_def
    found = {
        tf.as_dtype(node.attr["Tindices"].type)
        for node in nodes
        if node.op in ("ResourceGather", "ResourceScatterUpdate")
    }
    assert found == {tf.int64}
