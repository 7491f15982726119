"""`HierarchicalSoftmaxLoss` against its formula, and in training."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness, low_precision, replicas
from tests.papers.hierarchical.hierarchical_problem import (
    BATCH,
    DIM,
    PARTITIONS,
    SEVERAL,
    UNEVEN,
    N,
    Problem,
)
from tests.reference import hierarchical_softmax as reference
from tests.slow import slow_but
from tf_largeout import layers, losses, metrics, optimizers

EVERY_PARTITION = pytest.mark.parametrize("kwargs", PARTITIONS.values(), ids=PARTITIONS)
ROWS = losses.HierarchicalSoftmaxLoss(reduction=None)


def some_places(array):
    """Returns the indices at which finite differences are computed."""
    places = np.random.default_rng(0).choice(array.size, min(8, array.size), replace=False)
    return [np.unravel_index(place, array.shape) for place in places]


@pytest.mark.parametrize(
    "name, training, several",
    slow_but(
        [*((name, True, True) for name in PARTITIONS), ("given", False, False)],
        itertools.product(PARTITIONS, [True, False], [True, False]),
    ),
)
def test_equals_its_formula(name, training, several):
    problem, labels = Problem(**PARTITIONS[name]), SEVERAL if several else SEVERAL[:, 0]
    found = ROWS(labels, problem.layer(problem.features, training=training))
    expected = reference.loss(problem.expected(), np.reshape(labels, [BATCH, -1]))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "loss_class, name",
    [
        (losses.HierarchicalSoftmaxLoss, "given"),
        pytest.param(losses.HierarchicalSoftmaxLoss, "one class each", marks=pytest.mark.slow),
        (losses.HierarchicalSoftmaxLoss, "without bias"),
        (losses.SoftmaxLoss, "given"),
    ],
)
def test_gradients_equal_finite_differences_of_the_formula(loss_class, name):
    problem = Problem(**PARTITIONS[name])
    features, variables = tf.Variable(problem.features), problem.layer.trainable_weights
    with tf.GradientTape() as tape:
        value = loss_class(reduction="sum")(SEVERAL, problem.layer(features, training=True))
    gradients = tape.gradient(value, [features, *(v.value for v in variables)])
    weights = [array.astype(np.float64) for array in problem.weights]
    names = ["embeddings", "bias", "cluster_embeddings", "cluster_bias"]
    h = problem.features.astype(np.float64)
    arrays = dict(zip(names, weights, strict=True)) | {"features": h}
    for gradient, name in zip(
        gradients, ["features", *(v.name for v in variables)], strict=True
    ):
        gradient = tf.convert_to_tensor(gradient).numpy()
        array = arrays[name]
        for place in some_places(array):
            sums = []
            for step in (1e-4, -1e-4):
                array[place] += step
                log_p = reference.log_probabilities(h, *weights, problem.clusters)
                sums.append(reference.loss(log_p, SEVERAL).sum())
                array[place] -= step
            expected = (sums[0] - sums[1]) / 2e-4
            assert gradient[place] == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_gradients_have_each_row_of_the_clusters_of_labels_once():
    problem = Problem(clusters=UNEVEN)
    labels = np.array([[3, 3], [3, 5], [-1, -1], [-1, 3], [5, -1], [5, 5]])
    layer = problem.layer
    for variable in (layer.embeddings, layer.bias):
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(ROWS(labels, layer(problem.features, training=True)))
        gradient = tape.gradient(value, variable.value)
        assert isinstance(gradient, tf.IndexedSlices)
        touched = np.flatnonzero(np.isin(UNEVEN, UNEVEN[[3, 5]]))
        np.testing.assert_array_equal(gradient.indices, touched)


@pytest.mark.parametrize("labels", [np.zeros([BATCH, 0], int), np.full([BATCH, 2], -1)])
@pytest.mark.parametrize("training", [True, False])
def test_examples_without_labels_have_no_loss_and_no_gradient(labels, training):
    problem = Problem()
    with tf.GradientTape() as tape:
        rows = ROWS(labels, problem.layer(problem.features, training=training))
        value = tf.reduce_sum(rows)
    np.testing.assert_array_equal(rows, np.zeros(BATCH))
    gradients = tape.gradient(value, [v.value for v in problem.layer.trainable_weights])
    for gradient in gradients:
        assert gradient is None or not np.any(tf.convert_to_tensor(gradient))


def test_an_empty_batch_gives_no_losses():
    problem = Problem()
    for training in (True, False):
        logits = problem.layer(problem.features[:0], training=training)
        assert ROWS(np.zeros([0], np.int64), logits).shape == (0,)


def test_positions_of_sequences_are_examples_and_masked_ones_do_not_count():
    layer = Problem(clusters=UNEVEN).layer
    model = keras.Sequential([keras.layers.Embedding(6, DIM, mask_zero=True), layer])
    model.compile(loss=losses.HierarchicalSoftmaxLoss(reduction="sum"), run_eagerly=True)
    ids, labels = np.array([[1, 2, 0], [3, 0, 0]]), np.array([[4, 42, 6], [7, 8, 9]])
    log_p = model.predict(ids, verbose=0)
    expected = -np.take_along_axis(log_p, labels[..., None], 2)[..., 0] * (ids > 0)
    for weight in (None, np.array([2.0, 3.0])):
        found = model.evaluate(ids, labels, sample_weight=weight, verbose=0)
        weighted = expected if weight is None else expected * weight[:, np.newaxis]
        assert found == pytest.approx(weighted.sum(), rel=1e-5)


@pytest.mark.parametrize("dtype", slow_but(["bfloat16"], ["bfloat16", "float16"]))
def test_the_low_precision_error_is_at_most_twice_the_naive_error(dtype):
    found = []
    for seed in range(5):
        problem = Problem(f"mixed_{dtype}", seed=seed, clusters=UNEVEN)
        low = tf.cast(problem.features, dtype)
        rows = ROWS(SEVERAL, problem.layer(low, training=True))
        assert rows.dtype == "float32"
        embeddings, bias, *clusters = problem.weights
        naive = [
            low_precision.naive_logits(problem.features, *matrix, dtype)
            for matrix in ((embeddings, bias), clusters)
        ]
        # Each example has its own rows, so that logits are the naive ones.
        log_p = reference.log_probabilities(
            np.eye(BATCH), naive[0].T, np.zeros(N), naive[1].T, 0, problem.clusters
        )
        exact = reference.loss(problem.expected(), SEVERAL)
        found.append((rows.numpy(), reference.loss(log_p, SEVERAL), exact))
    low_precision.assert_within_twice_the_naive_error(*np.concatenate(found, axis=1))


@pytest.mark.slow  # In the short suite, replicas train in the test below.
@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("optimizer", [optimizers.LazyAdam, optimizers.RowwiseAdagrad])
def test_training_learns(optimizer, eager):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 200, 1000)
    features = rng.normal(size=[200, 16]).astype("float32")[labels]
    model = keras.Sequential([keras.Input([16]), layers.HierarchicalOutput(200)])
    model.compile(optimizer(0.1), losses.HierarchicalSoftmaxLoss(), run_eagerly=eager)
    model.optimizer.build(model.trainable_variables)  # Otherwise each step is traced twice.
    history = model.fit(features, labels, batch_size=100, epochs=2 if eager else 8, verbose=0)
    assert history.history["loss"][0] < 5.3  # log(200)
    assert history.history["loss"][-1] < (4.5 if eager else 2.5)


@pytest.mark.slow
def test_two_replicas_train_like_one():
    with replicas.two_replicas().scope():
        head = layers.HierarchicalOutput(N, clusters=UNEVEN)
        model = keras.Sequential([keras.Input([DIM]), head])
        model.compile(optimizers.LazyAdam(0.1), losses.HierarchicalSoftmaxLoss())
        model.optimizer.build(model.trainable_variables)  # Otherwise each step is traced twice.
    features = np.random.default_rng(0).normal(size=[40, DIM]).astype("float32")
    # An epoch on replicas takes as long as many steps.
    x, y = np.tile(features, (4, 1)), np.tile(np.arange(40), 4)
    history = model.fit(x, y, epochs=2, batch_size=40, shuffle=False, verbose=0).history
    assert history["loss"][-1] < history["loss"][0] - 1
    for weight in head.weights:
        np.testing.assert_array_equal(*weight.value.values)


def test_a_loss_of_keras_trains_the_layer():
    problem = Problem(clusters=UNEVEN)
    model = keras.Sequential([keras.Input([DIM]), problem.layer])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    labels = np.arange(BATCH)
    expected = reference.loss(problem.expected(), labels[:, np.newaxis]).mean()
    before = [v.numpy() for v in model.trainable_variables]
    assert model.train_on_batch(problem.features, labels) == pytest.approx(expected, rel=1e-4)
    keras_step = [v.numpy() for v in model.trainable_variables]
    for variable, value in zip(model.trainable_variables, before, strict=True):
        variable.assign(value)
    model.compile("sgd", losses.HierarchicalSoftmaxLoss())
    model.train_on_batch(problem.features, labels)
    for variable, other in zip(model.trainable_variables, keras_step, strict=True):
        np.testing.assert_allclose(variable, other, rtol=1e-4, atol=1e-5)


def test_training_metrics_are_exact_with_the_exact_loss():
    problem, labels = Problem(**PARTITIONS["given"]), np.array([3, 5, 0, 42, 7, 12])
    logits = problem.layer(problem.features, training=True)
    loss = losses.SoftmaxLoss()(labels, logits)
    perplexity, recall = metrics.Perplexity(), metrics.RecallAtK(5)
    for metric in (perplexity, recall):
        metric.update_state(labels, logits)
    log_p = problem.expected()
    own = log_p[range(BATCH), labels]
    ranks = np.sum(log_p > own[:, np.newaxis], axis=1)
    np.testing.assert_allclose(perplexity.result(), np.exp(-own.mean()), rtol=1e-5)
    np.testing.assert_allclose(loss, -own.mean(), rtol=1e-5)
    np.testing.assert_allclose(recall.result(), np.mean(ranks < 5), rtol=1e-6)


def test_another_output_layer_raises_an_error():
    head = harness.built_head(np.ones((10, 3), "float32"))
    message = "HierarchicalSoftmaxLoss cannot be used with the Large.*Use `SampledSoftmaxLoss`"
    with pytest.raises(ValueError, match=message):
        losses.HierarchicalSoftmaxLoss()([1], head(np.ones((1, 3), "f4"), training=True))


@pytest.mark.parametrize(
    "loss", [losses.SampledSoftmaxLoss(), losses.NCELoss(), losses.NegativeSamplingLoss()]
)
def test_sampled_losses_raise_an_error_that_names_them(loss):
    logits = Problem().layer(np.ones((1, DIM), "f4"), training=True)
    message = f"{type(loss).__name__} cannot .* HierarchicalOutput.*Use `HierarchicalSoftmax"
    with pytest.raises(ValueError, match=message):
        loss([1], logits)


@pytest.mark.parametrize("bad", [N, -2, 2**40])
def test_a_label_out_of_range_raises_an_error(bad):
    logits = Problem().layer(np.ones((2, DIM), "f4"), training=True)
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"(?s)\[0, {N}\).*{bad}"):
        ROWS(np.array([0, bad]), logits)


def test_config_round_trip():
    harness.config_round_trip(losses.HierarchicalSoftmaxLoss(reduction="sum", name="some_name"))
