"""Invalid steps of the factored output layer raise an error and change nothing."""

import numpy as np
import pytest
import tensorflow as tf

from tests.papers.factored.factored_output_ops_test import (
    Layer,
    assert_same,
    each_dtype,
    state_of,
)
from tests.reference.factored_problem import Problem
from tf_largeout.papers.factored import factored_output_ops


def not_a_number_in(name):
    def change(arguments):
        arguments[name] = np.array(arguments[name])
        arguments[name].flat[-1] = np.nan

    return change


def set_to(name, value):
    return lambda arguments: arguments.update({name: value})


def id_out_of_range(arguments):
    arguments["ids"] = np.where(
        arguments["ids"] == arguments["ids"].max(), 97, arguments["ids"]
    )


def other_version(arguments):
    arguments["scores"] = arguments["scores"]._replace(version=tf.constant(3, tf.int64))


def other_products(arguments):
    scores = arguments["scores"]
    arguments["scores"] = scores._replace(mixed_features=scores.mixed_features * np.inf)


def singular(arguments):
    """`M = I - 2 learning_rate H Gamma H^T` is singular for one row of features."""
    features = np.array(arguments["features"])
    features[1:] = 0
    square = 1 + (features[0] ** 2).sum()
    arguments["features"], arguments["by_q"] = features, np.zeros(len(features))
    arguments["by_q"][0] = 1 / (2 * arguments["learning_rate"] * square)


REFUSED = {
    "features": (not_a_number_in("features"), "features must be finite.*example 6 .*nan"),
    "by_q": (not_a_number_in("by_q"), "by_q must be finite.*example 6 is nan"),
    "by_s": (not_a_number_in("by_s"), "by_s must be finite.*example 6 is nan"),
    "by_a": (not_a_number_in("by_a"), "by_a must be finite.*example 6 is nan"),
    "negative_rate": (set_to("learning_rate", -0.1), "learning_rate must be .* got -0.1"),
    "infinite_rate": (set_to("learning_rate", np.inf), "learning_rate must be .* got inf"),
    "huge_rate": (set_to("learning_rate", 1e200), "infinite or NaN.*Lower the learning rate"),
    "singular": (
        singular,
        "a pivot of .* is .*, but must be at least .*Lower the learning rate",
    ),
    "id": (id_out_of_range, r"ids must be class ids in \[0, 97\)"),
    "version": (other_version, "from version 3 to 1: two of its outputs .* Concatenate"),
    "products": (other_products, "layer's mixing infinite or NaN"),
}


@each_dtype
@pytest.mark.parametrize("name", REFUSED)
def test_a_failing_step_changes_nothing(name, dtype):
    problem = Problem("taylor_softmax")
    layer = Layer(problem, dtype)
    layer.step(problem.labelled(7))
    before, batch = layer.numbers(), problem.labelled(7)
    change, message = REFUSED[name]
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        layer.step(batch, change=change)
    assert_same(layer.numbers(), before)
    layer.step(batch)  # The locks are free.
    assert layer.state.steps.numpy() == 2


def test_min_pivot_is_the_limit_of_singular_steps():
    problem = Problem("squared_error")
    layer = Layer(problem)
    batch = problem.labelled(1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be at least 5\\."):
        layer.step(batch, min_pivot=5.0)
    for bad in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(tf.errors.InvalidArgumentError, match="min_pivot must be"):
            layer.step(batch, min_pivot=bad)


def test_mismatched_shapes_raise_an_error():
    problem = Problem("squared_error")
    state, batch = state_of(problem.factored), problem.labelled(3)

    def refuses(match, features=batch.features, ids=batch.ids, **changed):
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=match):
            factored_output_ops.factored_output_scores(features, ids, state._replace(**changed))

    refuses("features must be .* with dim 17", features=batch.features[:, :-1])
    refuses("ids must be", ids=batch.ids[:-1])
    refuses("vectors must be", vectors=tf.Variable(tf.zeros([0, 17])))
    refuses("mixing must be", mixing=tf.Variable(tf.zeros([17, 17])))
    refuses("total must be", total=tf.Variable(tf.zeros([16], tf.float64)))
    refuses("steps must be", steps=tf.Variable(tf.zeros([1], tf.int64)))
    refuses("folds must be .* at least 9 rows", folds=tf.Variable(np.zeros([8, 18])))
    refuses("folds must be .* width 17", folds=tf.Variable(np.zeros([9, 17])))
    refuses("seen must be", seen=tf.Variable(np.zeros(97, "int64")))
    refuses("seen must be", seen=tf.Variable(np.zeros(96, "uint32")))
    refuses("are the same variable", mixing=state.inverse)
    layer = Layer(problem)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="by_q must be"):
        layer.step(batch, change=set_to("by_q", np.zeros(2)))
