"""Passes over all classes in blocks, compared with NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.papers.hierarchical.hierarchical_problem import PARTITIONS, Problem
from tests.reference import class_scan as reference
from tf_largeout import layers, losses, metrics
from tf_largeout.classes import blockwise
from tf_largeout.classes.class_scorer import ClassMatrix, ClassScorer

pytestmark = pytest.mark.portable

N, DIM, BATCH = 300, 4, 7
RNG = np.random.default_rng(0)
# Integers, so that logits are exact and many are equal up to their sign.
ROWS = RNG.integers(-2, 3, (N, DIM)).astype("float32")
BIAS = RNG.integers(-1, 2, N).astype("float32")
FEATURES = RNG.integers(-2, 3, (BATCH, DIM)).astype("float32")
LABELS = RNG.integers(-1, N, (BATCH, 3))
LOGITS = np.abs(reference.logits(FEATURES, ROWS, BIAS))


@pytest.fixture(params=[64, None], ids=["blocks of 64", "one block"])
def matrix(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(blockwise, "_NUMBERS_OF_A_BLOCK", 1)
    return ClassMatrix(keras.Variable(ROWS), keras.Variable(BIAS), "test")


def test_log_partition_and_label_logits_equal_the_reference(matrix):
    found = matrix.with_form(rank_by="absolute").statistics(FEATURES, tf.constant(LABELS))
    np.testing.assert_allclose(found.log_partition, reference.log_partition(LOGITS), rtol=1e-6)
    np.testing.assert_array_equal(found.true_logits, reference.true_logits(LOGITS, LABELS))


def test_equal_absolute_logits_are_ranked_by_id(matrix):
    ranks = matrix.with_form(rank_by="absolute").statistics(FEATURES, tf.constant(LABELS)).ranks
    np.testing.assert_array_equal(ranks, reference.ranks(LOGITS, LABELS))


@pytest.mark.parametrize("k", [1, 10, 100, N])
def test_top_k_sorts_equal_logits_by_id(matrix, k):
    scores, ids = matrix.with_form(rank_by="absolute").top_k(tf.constant(FEATURES), k)
    expected_scores, expected_ids = reference.top_k(LOGITS, k)
    np.testing.assert_array_equal(scores, expected_scores)
    np.testing.assert_array_equal(ids, expected_ids)


def test_a_row_with_nan_is_last():
    rows = ROWS.copy()
    rows[5] = np.nan
    scorer = ClassMatrix(keras.Variable(rows), None, "test").with_form(rank_by="absolute")
    _, ids = scorer.top_k(tf.constant(FEATURES), N)
    np.testing.assert_array_equal(ids[:, -1], np.full(BATCH, 5))
    in_graph = tf.function(lambda features: scorer.top_k(features, N)[1])
    np.testing.assert_array_equal(in_graph(tf.constant(FEATURES)), ids)
    ranks = scorer.statistics(FEATURES, tf.constant([[5, 7]] * BATCH, tf.int64)).ranks
    np.testing.assert_array_equal(ranks[:, 0], np.full(BATCH, N))


@pytest.mark.parametrize("batch", [0, 1, 50_000])
def test_blocks_are_in_order_and_of_limited_size(batch):
    matrix = ClassMatrix(keras.Variable(ROWS), None, "test")
    sizes, all_ids = [], []

    def see(state, logits, ids):
        sizes.append(logits.shape)
        all_ids.extend(ids.numpy())
        return state

    matrix.fold_logits(np.ones((batch, DIM)), see, tf.constant(0))
    assert all_ids == list(range(N))
    assert max(rows * width for rows, width in sizes) <= 2**22


def test_a_pass_over_clustered_classes_gives_log_probabilities(monkeypatch):
    monkeypatch.setattr(blockwise, "_NUMBERS_OF_A_BLOCK", 1)
    monkeypatch.setattr(blockwise, "_LEAST_IN_BLOCK", 8)
    problem = Problem(**PARTITIONS["given"])
    blocks = []

    def see(state, scores, ids):
        blocks.append(scores.numpy())
        return state + tf.size(ids)

    fold = problem.layer.class_matrix.fold_logits
    assert fold(problem.features, see, tf.constant(0)) == problem.layer.num_classes
    np.testing.assert_allclose(np.hstack(blocks), problem.expected(), rtol=1e-4, atol=1e-5)


def test_a_pass_over_factored_classes_gives_logits(monkeypatch):
    monkeypatch.setattr(blockwise, "_NUMBERS_OF_A_BLOCK", 1)
    layer = layers.FactoredOutput(N, 0.02, embeddings_initializer=ROWS, bias_initializer=BIAS)
    model = keras.Sequential([keras.Input((DIM,)), layer])
    model.compile("sgd", losses.TaylorSoftmaxLoss())
    model.train_on_batch(FEATURES, np.arange(BATCH))
    blocks, ids_seen = [], []

    def see(state, logits, ids):
        blocks.append(logits.numpy())
        ids_seen.extend(ids.numpy())
        return state

    layer.class_matrix.fold_logits(tf.constant(FEATURES), see, tf.constant(0))
    expected = model.predict(FEATURES, verbose=0)
    assert len(blocks) > 1 and ids_seen == list(range(N))
    np.testing.assert_allclose(np.hstack(blocks), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_nan_scores_come_last_sorted_by_id(bad):
    found = np.array([[1, bad, 3], [bad, bad, 2]], "float32")

    def fold(features, function, state, classes=None):
        for first in range(3):
            scores = tf.constant(found[:, first : first + 1])
            state = function(state, scores, tf.constant([first], tf.int64))
        return state

    scores, ids = blockwise.top_k(fold, tf.zeros([2, 1]), 3)
    np.testing.assert_array_equal(ids, [[2, 0, 1], [2, 0, 1]])
    np.testing.assert_array_equal(scores, [[3, 1, -np.inf], [2, -np.inf, -np.inf]])


def test_top_k_of_features_that_are_not_finite_raises_an_error(matrix):
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be finite"):
        matrix.with_form(rank_by="absolute").top_k(tf.constant([[np.nan] * DIM]), 3)


def test_a_view_of_absolute_scores_keeps_rows_and_padding(matrix):
    scorer, ids = matrix.with_form(rank_by="absolute"), tf.constant(LABELS)
    found = scorer.dots(tf.constant(FEATURES), ids)
    expected = np.take_along_axis(LOGITS, np.maximum(LABELS, 0), 1)
    np.testing.assert_array_equal(found, np.where(LABELS < 0, tf.float32.min, expected))
    np.testing.assert_array_equal(scorer.logits(tf.constant(FEATURES)), LOGITS)
    np.testing.assert_array_equal(scorer.values(), ROWS)
    np.testing.assert_array_equal(scorer.rows([3, 5]), ROWS[[3, 5]])


def test_a_scorer_must_define_its_methods():
    scorer = ClassScorer(3, DIM, False, "test")
    for method in ("values", "rows", "logits", "dots", "fold_logits"):
        with pytest.raises(NotImplementedError, match=f"ClassScorer must define `{method}`"):
            getattr(scorer, method)(
                *[None] * {"values": 0, "dots": 2, "fold_logits": 3}.get(method, 1)
            )


def test_a_layer_without_a_loss_ranks_by_logit_by_default():
    head = harness.built_head(ROWS, BIAS)
    features = FEATURES[:6].reshape(2, 3, DIM)
    scores, ids = head.top_k(features, 4, absolute=True)
    expected_scores, expected_ids = reference.top_k(LOGITS[:6], 4)
    np.testing.assert_array_equal(scores, expected_scores.reshape(2, 3, 4))
    np.testing.assert_array_equal(ids, expected_ids.reshape(2, 3, 4))
    by_logit = reference.top_k(reference.logits(FEATURES[:6], ROWS, BIAS), 4)[1]
    np.testing.assert_array_equal(head.top_k(features, 4)[1], by_logit.reshape(2, 3, 4))


@pytest.mark.slow
def test_evaluate_gives_the_exact_absolute_loss_and_metrics():
    model = keras.Sequential([keras.Input((DIM,)), layers.LargeOutput(N, "uniform")])
    model.layers[-1].set_weights([ROWS, BIAS, *model.layers[-1].get_weights()[2:]])
    precision = metrics.PrecisionAtK(1, absolute=True)
    model.compile(
        loss=losses.AbsoluteSoftmaxLoss(),
        metrics=[
            precision,
            metrics.Perplexity(absolute=True),
            metrics.PrecisionAtK(1, absolute=False),
        ],
    )
    labels = reference.top_k(LOGITS, 1)[1][:, 0]
    labels[0] = 3
    found = model.evaluate(FEATURES, labels, batch_size=3, verbose=0, return_dict=True)
    exact = reference.log_partition(LOGITS) - LOGITS[range(BATCH), labels]
    np.testing.assert_allclose(found["loss"], exact.mean(), rtol=1e-5)
    np.testing.assert_allclose(found["absolute_perplexity"], np.exp(exact.mean()), rtol=1e-5)
    np.testing.assert_allclose(found["absolute_precision_at_1"], (BATCH - 1) / BATCH)
    best = np.argmax(reference.logits(FEATURES, ROWS, BIAS), axis=1)
    np.testing.assert_allclose(found["precision_at_1"], np.mean(best == labels), rtol=1e-6)
