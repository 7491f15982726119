"""Logits of labels without a pass over all classes, compared with those of a pass."""

import numpy as np
import pytest
import tensorflow as tf

from tests.ops.class_problem import SHAPES, Problem
from tf_largeout.ops import class_scan_ops


@pytest.mark.parametrize("shape", [*SHAPES, (0, 7, 5, 2), (6, 50, 5, 0)], ids=str)
@pytest.mark.parametrize("compute_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("bias", [False, True])
def test_label_logits_are_bit_identical_to_those_of_a_scan(
    for_all_product_levels, shape, compute_dtype, bias
):
    problem = Problem(*shape, bias=bias)
    arguments = problem.features, *problem.handles, problem.labels
    _, expected, _ = class_scan_ops.class_statistics(*arguments, compute_dtype=compute_dtype)
    found = class_scan_ops.label_logits(*arguments, compute_dtype)
    np.testing.assert_array_equal(found, expected)
    assert np.all(found.numpy()[problem.labels < 0] == 0)


@pytest.mark.parametrize("bias", [False, True])
def test_gradients_equal_those_of_a_scan(bias):
    problem = Problem(20, 300, 16, 9, bias=bias)
    weights = np.random.default_rng(1).normal(size=(20, 9)).astype("float32")
    sources = [tf.constant(problem.features), *(v for v in problem.variables if v is not None)]

    def gradients(logits_of):
        with tf.GradientTape() as tape:
            tape.watch(sources[0])
            logits = logits_of(sources[0], *problem.variables, problem.labels)
            loss = tf.reduce_sum(weights * logits)
        return tape.gradient(loss, sources)

    expected = gradients(lambda *arguments: class_scan_ops.class_statistics(*arguments)[1])
    for found, want in zip(gradients(class_scan_ops.label_logits), expected, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
        assert np.any(found != 0)


@pytest.mark.parametrize("label", [-2, 7, 2**33])
def test_a_label_out_of_range_raises_an_error(label):
    problem = Problem(3, 7, 5, 2)
    problem.labels[1, 1] = label
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=rf"\[0, 7\).*got {label} at example 1"
    ):
        class_scan_ops.label_logits(problem.features, *problem.handles, problem.labels)


def test_mismatched_shapes_raise_an_error_and_others_are_inferred():
    problem = Problem(3, 7, 5, 2)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="4"):
        class_scan_ops.label_logits(np.ones([3, 4], "f"), *problem.handles, problem.labels)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="labels|equal"):
        class_scan_ops.label_logits(problem.features, *problem.handles, problem.labels[:2])

    @tf.function(input_signature=[tf.TensorSpec([None, 5]), tf.TensorSpec([None, 2], tf.int64)])
    def ask(features, labels):
        logits = class_scan_ops.label_logits(features, *problem.handles, labels)
        assert logits.shape.as_list() == [None, 2]
        return logits

    assert ask(problem.features, problem.labels).shape == (3, 2)
