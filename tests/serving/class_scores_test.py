"""Scores of all classes in blocks by TensorFlow's operations, compared with NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.serving import models
from tf_largeout.serving import class_scores

pytestmark = pytest.mark.portable

N, DIM, BATCH = 103, 6, 7
RNG = np.random.default_rng(4)
EMBEDDINGS = RNG.normal(size=(N, DIM)).astype("float32")
BIAS = RNG.normal(size=N).astype("float32")
FEATURES = RNG.normal(size=(BATCH, DIM)).astype("float32")
each_block = pytest.mark.parametrize("block", [16, 48, N, 2 * N])


def best(embeddings, bias, block, features, k):
    variable = None if bias is None else tf.Variable(bias)
    products = class_scores.BlockedProducts(tf.Variable(embeddings), variable, block=block)
    return dict(zip(("scores", "ids"), products.top_k(features, k), strict=True))


@pytest.mark.parametrize("k", [1, 20, N])
@each_block
@pytest.mark.parametrize("bias", [BIAS, None], ids=["bias", "no bias"])
def test_the_best_classes_equal_numpy_for_any_block_size(bias, block, k):
    expected = models.best(FEATURES @ EMBEDDINGS.T + (0 if bias is None else bias), k)
    for number in (k, tf.constant(k)):
        found = best(EMBEDDINGS, bias, block, FEATURES, number)
        models.assert_same(found, expected)


@each_block
def test_equal_scores_are_sorted_by_id(block):
    # Small integers, whose products are exact and often equal.
    embeddings = RNG.integers(-1, 2, (N, DIM)).astype("float32")
    features = RNG.integers(-1, 2, (BATCH, DIM)).astype("float32")
    found = best(embeddings, None, block, features, 40)
    models.assert_same(found, models.best(features @ embeddings.T, 40), 0)


def test_empty_batches_and_k_of_zero_are_supported():
    scores = class_scores.BlockedProducts(tf.Variable(EMBEDDINGS), None, block=16)
    assert scores.top_k(FEATURES[:0], 4)[1].shape == (0, 4)
    assert scores.top_k(FEATURES, tf.constant(0))[1].shape == (BATCH, 0)


@pytest.mark.parametrize("num_classes", [1, 65_536, 65_537, 10**7, 10**8])
def test_blocks_are_few_and_start_at_aligned_rows(num_classes):
    block = class_scores.default_block(num_classes)
    assert -(-num_classes // block) <= 64
    assert block % 16 == 0
    assert block <= max(2**16, num_classes // 64 + 16)


def test_blocks_are_computed_one_after_the_other():
    """Otherwise TensorFlow computes many at once and stores the scores of all classes."""
    scores = class_scores.BlockedProducts(tf.Variable(EMBEDDINGS), None, block=16)
    traced = tf.function(scores.top_k).get_concrete_function(
        tf.TensorSpec([None, DIM], tf.float32), 3
    )
    products = [op for op in traced.graph.get_operations() if op.type == "MatMul"]
    assert len(products) == 7
    waits = [[one.type for one in op.inputs[0].op.control_inputs] for op in products]
    assert waits == [[], *[["TopKV2"]] * 6]


def test_variables_of_a_layer_are_not_copied():
    head = harness.built_head(EMBEDDINGS, BIAS)
    embeddings, bias = head.class_matrix.as_products()
    assert embeddings is head.embeddings.value
    assert bias is head.bias.value
