"""The number of times that a step reads the learning rate and the step counter."""

import keras
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tf_largeout.ops import devices


def scalar_reads(optimizer, num_variables):
    """Returns the number of reads of the learning rate and the step counter in a step."""
    variables = [keras.Variable(tf.ones([4, 2])) for _ in range(num_variables)]
    optimizer.build(variables)
    rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([1]), tf.constant([4, 2]))

    @tf.function(autograph=False)
    def step():
        optimizer.apply([rows] * num_variables, variables)

    graph = step.get_concrete_function().graph
    scalars = {id(one.value.handle) for one in (optimizer.iterations, optimizer._learning_rate)}
    handles = {id(inside) for outside, inside in graph.captures if id(outside) in scalars}
    assert len(handles) == 2
    reads = [op for op in graph.get_operations() if op.type == "ReadVariableOp"]
    return sum(id(op.inputs[0]) in handles for op in reads)


@pytest.mark.parametrize("on_servers", [False, True])
@pytest.mark.parametrize("optimizer", ["LazyAdam", "LazyAdagrad", "LazySGD", "RowwiseAdagrad"])
def test_the_number_of_reads_does_not_depend_on_the_number_of_variables(
    optimizer, on_servers, monkeypatch
):
    if on_servers:
        monkeypatch.setattr(devices, "server_of", lambda variable: "/device:CPU:0")
    make = getattr(tflo.optimizers, optimizer)
    assert scalar_reads(make(0.1), 1) == scalar_reads(make(0.1), 4)
