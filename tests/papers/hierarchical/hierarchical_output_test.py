"""`HierarchicalOutput` as a Keras layer: probabilities, exact search, files."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.integration.graphs import tensors_of_size
from tests.papers.hierarchical.hierarchical_problem import (
    BATCH,
    CLUSTERS,
    DIM,
    PARTITIONS,
    SEVERAL,
    UNEVEN,
    N,
    Problem,
)
from tests.slow import slow_but
from tf_largeout import layers, losses, metrics, optimizers
from tf_largeout.classes import blockwise

SOME_PARTITIONS = pytest.mark.parametrize(
    "name", slow_but(["given"], ["given", "without bias"])
)


@pytest.fixture(params=[2**22, 1], ids=["one block", "many blocks"], name="blocks")
def _blocks(request, monkeypatch):
    monkeypatch.setattr(blockwise, "_NUMBERS_OF_A_BLOCK", request.param)
    monkeypatch.setattr(blockwise, "_LEAST_IN_BLOCK", 8)


@pytest.mark.parametrize(
    "in_graph, name",
    slow_but(
        [*((False, name) for name in PARTITIONS), (True, "given")],
        itertools.product([False, True], PARTITIONS),
    ),
)
def test_the_output_is_log_probabilities_that_sum_to_one(in_graph, name):
    problem = Problem(**PARTITIONS[name])
    call = tf.function(problem.layer) if in_graph else problem.layer
    found = call(tf.constant(problem.features)).numpy()
    np.testing.assert_allclose(found, problem.expected(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1, rtol=1e-5)


def test_large_logits_do_not_overflow_or_underflow():
    problem = Problem(**PARTITIONS["given"])
    features = 300 * problem.features
    found = problem.layer(features).numpy()
    assert np.all(np.isfinite(found)) and found.min() < -1000
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1, rtol=1e-4)
    rows = losses.HierarchicalSoftmaxLoss(reduction=None)(
        np.arange(BATCH), problem.layer(features, training=True)
    )
    np.testing.assert_allclose(rows, -found[range(BATCH), range(BATCH)], rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(
    "name, k",
    slow_but(
        [(name, 5) for name in ("default", "one", "one class each", "without bias")]
        + [("given", k) for k in (1, 5, N)],
        itertools.product(PARTITIONS, [1, 5, N]),
    ),
)
def test_top_k_sorts_the_log_probabilities(name, k, blocks):
    problem = Problem(**PARTITIONS[name])
    scores, ids = problem.layer.top_k(problem.features, k)
    expected = problem.expected()
    order = np.argsort(-expected, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(ids, order)
    np.testing.assert_allclose(
        scores, np.take_along_axis(expected, order, 1), rtol=1e-4, atol=1e-5
    )


@SOME_PARTITIONS
def test_top_k_in_a_graph_equals_eager(name, blocks):
    problem = Problem(**PARTITIONS[name])
    _, expected = problem.layer.top_k(problem.features, 5)
    _, ids = tf.function(problem.layer.top_k, autograph=False)(problem.features, 5)
    np.testing.assert_array_equal(ids, expected)


@SOME_PARTITIONS
def test_evaluation_is_exact(name, blocks):
    problem = Problem(**PARTITIONS[name])
    model = keras.Sequential([keras.Input([DIM]), problem.layer])
    model.compile(
        loss=losses.HierarchicalSoftmaxLoss(),
        metrics=[metrics.PrecisionAtK(1), metrics.RecallAtK(5), metrics.Perplexity()],
        run_eagerly=True,
    )
    labels = np.array([3, 5, 0, 42, 7, 12])
    found = model.evaluate(problem.features, labels, verbose=0, return_dict=True)
    log_p = problem.expected()
    own = log_p[range(BATCH), labels]
    ranks = np.sum(log_p > own[:, np.newaxis], axis=1)
    assert found["loss"] == pytest.approx(-own.mean(), rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(-own.mean()), rel=1e-5)
    assert found["precision_at_1"] == pytest.approx(np.mean(ranks < 1))
    assert found["recall_at_5"] == pytest.approx(np.mean(ranks < 5))


def test_an_empty_batch_gives_empty_results(blocks):
    problem = Problem(**PARTITIONS["given"])
    nothing, no_labels = problem.features[:0], np.zeros([0], int)
    assert [part.shape for part in problem.layer.top_k(nothing, 3)] == [(0, 3), (0, 3)]
    model = keras.Sequential([keras.Input([DIM]), problem.layer])
    model.compile(
        "lazy_adam",
        losses.HierarchicalSoftmaxLoss(),
        metrics=[metrics.PrecisionAtK(1)],
        run_eagerly=True,
    )
    for step in (model.test_on_batch, model.train_on_batch):
        np.testing.assert_array_equal(step(nothing, no_labels), [0, np.nan])
    assert model.predict_on_batch(nothing).shape == (0, N)


def test_statistics_of_several_labels_equal_those_of_the_log_probabilities(blocks):
    problem = Problem(**PARTITIONS["given"])
    found = problem.layer.class_matrix.statistics(tf.constant(problem.features), SEVERAL)
    log_p, present = problem.expected(), SEVERAL >= 0
    own = np.take_along_axis(log_p, SEVERAL, axis=1)
    ranks = np.sum(log_p[:, np.newaxis] > own[:, :, np.newaxis], axis=2)
    np.testing.assert_array_equal(found.ranks, np.where(present, ranks, N))
    np.testing.assert_allclose(found.true_logits, np.where(present, own, 0), rtol=1e-4)
    np.testing.assert_array_equal(found.log_partition, 0)


def test_equal_classes_are_ranked_by_their_ids(blocks):
    layer = layers.HierarchicalOutput(N, CLUSTERS, embeddings_initializer="zeros")
    features = np.ones([N, DIM], "float32")
    log_p = layer(features).numpy()
    order = np.argsort(-log_p[0], kind="stable")
    labels = np.arange(N)[:, np.newaxis]
    ranks = layer.class_matrix.statistics(tf.constant(features), labels).ranks.numpy()
    np.testing.assert_array_equal(ranks[order, 0], np.arange(N))
    np.testing.assert_array_equal(layer.top_k(features[:2], 9)[1], [order[:9]] * 2)


def test_classes_with_nan_come_last():
    problem = Problem(num_clusters=CLUSTERS)
    embeddings = problem.layer.embeddings.numpy()
    embeddings[9, 0] = np.nan
    problem.layer.embeddings.assign(embeddings)
    cluster = np.flatnonzero(problem.clusters == problem.clusters[9])
    ids = problem.layer.top_k(problem.features, N)[1].numpy()
    np.testing.assert_array_equal(ids[:, -len(cluster) :], [cluster] * BATCH)
    labels = tf.constant(np.tile(cluster[:1], [BATCH, 1]))
    ranks = problem.layer.class_matrix.statistics(tf.constant(problem.features), labels).ranks
    np.testing.assert_array_equal(ranks, N)


def test_top_k_of_features_that_are_not_finite_raises_an_error():
    problem = Problem()
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be finite"):
        problem.layer.top_k(np.full([1, DIM], np.nan), 1)


@pytest.mark.parametrize("training", [False, True])
def test_ranking_by_absolute_values_raises_an_error(training):
    problem, labels = Problem(), np.arange(BATCH)
    logits = problem.layer(problem.features, training=training)
    losses.HierarchicalSoftmaxLoss()(labels, logits)
    asked = [
        lambda: problem.layer.top_k(problem.features, 1, absolute=True),
        lambda: metrics.PrecisionAtK(1, absolute=True).update_state(labels, logits),
        lambda: metrics.Perplexity(absolute=True).update_state(labels, logits),
    ]
    for ask in asked:
        with pytest.raises(ValueError, match="absolute=True. Leave `absolute` out"):
            ask()
    with pytest.raises(ValueError, match="AbsoluteSoftmaxLoss cannot be used"):
        losses.AbsoluteSoftmaxLoss()(labels, logits)


@pytest.mark.slow
@pytest.mark.parametrize(
    "output",
    slow_but([layers.HuffmanOutput], [layers.HierarchicalOutput, layers.HuffmanOutput]),
)
def test_no_tensor_of_a_training_step_grows_with_the_number_of_classes(output):
    num_classes = 1009
    model = keras.Sequential([keras.Input([DIM]), output(num_classes)])
    model.compile(
        optimizers.LazyAdam(),
        losses.HierarchicalSoftmaxLoss(),
        metrics=[metrics.PrecisionAtK(1), metrics.Perplexity()],
        run_eagerly=True,
    )
    data = tf.zeros([8, DIM]), tf.zeros([8], tf.int64)
    model.train_on_batch(*data)
    step = tf.function(model.train_step).get_concrete_function(data)
    for size in (num_classes, num_classes - 1):
        assert tensors_of_size(step, size) == []


def test_training_metrics_are_exact_or_optimistic():
    problem = Problem(**PARTITIONS["given"])
    logits = problem.layer(problem.features, training=True)
    labels = np.array([3, 5, 0, 42, 7, 12])
    perplexity, precision = metrics.Perplexity(), metrics.PrecisionAtK(1)
    for metric in (perplexity, precision):
        metric.update_state(labels, logits)
        assert np.isnan(metric.result())  # no loss has computed the labels' logits
    loss = losses.HierarchicalSoftmaxLoss()(labels, logits)
    for metric in (perplexity, precision):
        metric.update_state(labels, logits)
    log_p = problem.expected()
    best_of_cluster = [
        label == max(np.flatnonzero(problem.clusters == problem.clusters[label]), key=row.item)
        for row, label in zip(log_p, labels, strict=True)
    ]
    np.testing.assert_allclose(perplexity.result(), np.exp(loss), rtol=1e-5)
    np.testing.assert_allclose(precision.result(), np.mean(best_of_cluster), rtol=1e-6)
    assert np.mean(best_of_cluster) > np.mean(np.argmax(log_p, axis=1) == labels)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_computes_in_low_precision_and_stores_float32(policy):
    layer = Problem(policy).layer
    assert layer(np.ones([2, DIM], "f4")).dtype == keras.DTypePolicy(policy).compute_dtype
    assert {weight.dtype for weight in layer.weights} == {"float32", "int64"}


@SOME_PARTITIONS
def test_a_saved_model_keeps_its_clusters(name, tmp_path):
    problem = Problem(**PARTITIONS[name])
    model = keras.Sequential([keras.Input([DIM]), problem.layer])
    loss = losses.HierarchicalSoftmaxLoss()
    model.compile(optimizers.LazyAdam(0.1), loss, run_eagerly=True)
    model.fit(problem.features, np.arange(BATCH), verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for one in (model, loaded):
        one.fit(problem.features, np.arange(BATCH), verbose=0)
    np.testing.assert_array_equal(loaded.layers[-1].cluster_of_class, problem.clusters)
    np.testing.assert_array_equal(loaded(problem.features), model(problem.features))


def test_an_exported_model_gives_log_probabilities(tmp_path):
    problem = Problem(**PARTITIONS["given"])
    model = keras.Sequential([keras.Input([DIM]), problem.layer])
    assert model.output_shape == (None, N)
    model.export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "model")
    served = loaded.serve(problem.features)
    np.testing.assert_allclose(served, problem.expected(), rtol=1e-4, atol=1e-5)


def test_config_round_trip_omits_arrays():
    clone = harness.config_round_trip(
        layers.HierarchicalOutput(N, clusters=UNEVEN, use_bias=False, name="head")
    )
    assert clone.num_clusters == UNEVEN.max() + 1
