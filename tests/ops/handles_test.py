"""Handles of variables as inputs of ops, and gradient tapes that watch them."""

import keras
import pytest
import tensorflow as tf

from tf_largeout.ops.devices import handle_of, optional_handle

KINDS = {"tf": tf.Variable, "keras": keras.Variable}


@pytest.fixture(params=KINDS)
def variable(request):
    return KINDS[request.param](tf.ones([4, 3]))


def as_tf(variable):
    return variable.value if isinstance(variable, keras.Variable) else variable


def test_keras_variables_tf_variables_and_handles_are_accepted(variable):
    handle = as_tf(variable).handle
    assert handle_of(variable) is handle
    assert handle_of(handle) is handle
    assert optional_handle(variable)[0] is handle
    assert optional_handle(None) == []


@pytest.mark.parametrize("watch", [True, False])
def test_a_tape_watches_a_variable_on_request(variable, watch):
    with tf.GradientTape() as tape:
        handle_of(variable, watch)
        optional_handle(variable, watch)
    watched = [one.ref() for one in tape.watched_variables()]
    assert watched == [as_tf(variable).ref()] * watch


@pytest.mark.parametrize("watch", [True, False])
def test_no_rows_are_read(variable, watch):
    @tf.function
    def function():
        handle_of(variable, watch)

    ops = [op.type for op in function.get_concrete_function().graph.get_operations()]
    assert "ReadVariableOp" not in ops
    assert ops.count("ResourceGather") == watch
