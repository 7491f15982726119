"""A `FactoredOutput` takes one step per batch: a second call that trains it is an error."""

import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.papers.factored.factored_models import BATCH, DIM, bits, data, head, steps_of
from tests.slow import slow_but
from tf_largeout import losses

X, Y = data(BATCH)
X = X.astype("float32")
LOSS = losses.ZLoss()
CALLED_TWICE = "'factored_output.*was called twice in one training step.*call the layer once"


def model_of_two_calls(eager=False, loss_weights=None, **kwargs):
    inputs, layer = keras.Input([DIM]), head(**kwargs)
    hidden = keras.layers.Dense(DIM)(inputs)
    one = keras.Model(inputs, [layer(hidden), layer(2 * hidden)])
    one.compile(keras.optimizers.SGD(0.1), [LOSS, LOSS], loss_weights, run_eagerly=eager)
    one.optimizer.build(one.trainable_variables)
    return one


def built_head():
    layer = head()
    layer.build([None, DIM])
    return layer


@pytest.mark.parametrize("eager", slow_but([False], [False, True]))
def test_two_calls_in_a_step_of_fit_raise_an_error(eager):
    one = model_of_two_calls(eager)
    before = bits(one)
    with pytest.raises(ValueError, match=CALLED_TWICE):
        one.fit(X, [Y, Y], verbose=0)
    assert bits(one) == before


@pytest.mark.parametrize("in_graph", slow_but([False], [False, True]))
def test_two_calls_in_a_custom_loop_raise_an_error(in_graph):
    layer, variable = built_head(), tf.Variable(X)

    def value_of(features):
        return LOSS(Y, layer(features, training=True))

    def step():
        with tf.GradientTape() as tape:
            value = value_of(variable) + value_of(2 * variable)
        return tape.gradient(value, variable)

    before = bits(layer)
    with pytest.raises(ValueError, match=CALLED_TWICE):
        (tf.function(step) if in_graph else step)()
    assert bits(layer) == before


@pytest.mark.slow
def test_two_calls_in_different_functions_raise_an_error_in_the_step():
    layer, variable = built_head(), tf.Variable(X)
    value_of = tf.function(lambda features: LOSS(Y, layer(features, training=True)))
    with tf.GradientTape() as tape:
        value = value_of(variable) + value_of(2 * variable)
    with pytest.raises(tf.errors.InvalidArgumentError, match="two of its outputs were trained"):
        tape.gradient(value, variable)


@pytest.mark.parametrize("in_graph", slow_but([False], [False, True]))
def test_consecutive_steps_are_allowed(in_graph):
    layer, variable = built_head(), tf.Variable(X)

    def two_steps():
        for _ in range(2):
            with tf.GradientTape(persistent=True) as tape:
                value = LOSS(Y, layer(variable, training=True))
            tapes.append(tape)  # still alive, but used
            tape.gradient(value, variable)

    tapes = []
    (tf.function(two_steps, autograph=False) if in_graph else two_steps)()
    assert steps_of(layer) == 2


def test_a_second_call_outside_the_tape_is_allowed():
    layer, variable = built_head(), tf.Variable(X)
    with tf.GradientTape() as tape:
        value = LOSS(Y, layer(variable, training=True))
    LOSS(Y, layer(variable, training=True))  # no tape records it
    tape.gradient(value, variable)
    assert steps_of(layer) == 1


def test_a_call_in_an_interrupted_step_does_not_count():
    layer, variable = built_head(), tf.Variable(X)

    def step(is_interrupted):
        with tf.GradientTape() as tape:
            value = LOSS(Y, layer(variable, training=True))
        if is_interrupted:
            raise KeyboardInterrupt
        return tape.gradient(value, variable)

    try:
        step(is_interrupted=True)
    except KeyboardInterrupt:
        traceback = sys.exc_info()[2]  # interactive Python keeps it too, and with it the tape
    step(is_interrupted=False)
    assert traceback is not None and steps_of(layer) == 1


@pytest.mark.slow
@pytest.mark.parametrize("eager", slow_but([False], [False, True]))
def test_two_calls_of_a_frozen_layer_train_the_layers_before_it(eager):
    one = model_of_two_calls(eager, trainable=False)
    kernel, of_head = one.layers[1].kernel.numpy(), bits(one.layers[-1])
    one.train_on_batch(X, [Y, Y])
    assert np.any(one.layers[1].kernel.numpy() != kernel)
    assert bits(one.layers[-1]) == of_head
