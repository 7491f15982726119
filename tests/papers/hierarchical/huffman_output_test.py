"""`HuffmanOutput`: its tree, probabilities, loss, gradients, exact evaluation and files."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.reference import binary_tree as reference
from tests.reference import hierarchical_softmax
from tests.slow import slow_but
from tf_largeout import layers, losses, metrics, optimizers, retrieval, serving
from tf_largeout.papers.hierarchical.huffman_output import huffman_depths

N, DIM, BATCH = 43, 5, 6
RNG = np.random.default_rng(2)
COUNTS = RNG.permutation(1000 // np.arange(1, N + 1))
SEVERAL = harness.pad([[3], [3, 5, 42], [0, 36], [], [7, 8], [12, 1]])
LABELS = np.array([3, 5, 0, 42, 7, 12])
TREES = {
    "counts": {"counts": COUNTS},
    "balanced": {},
    "without bias": {"counts": COUNTS, "use_bias": False},
    "deepest": {"counts": 2.0 ** np.arange(N)},
    "two": {"num_classes": 2},
    "three": {"num_classes": 3},
}
EVERY_TREE = pytest.mark.parametrize("tree", TREES.values(), ids=TREES)


class Problem:
    def __init__(self, dtype="float32", **kwargs):
        rng = np.random.default_rng(3)
        self.layer = layers.HuffmanOutput(**{"num_classes": N, **kwargs}, dtype=dtype)
        self.layer.build((None, DIM))
        self.features = rng.normal(size=(BATCH, DIM)).astype("float32")
        for weight in self.layer.trainable_weights:
            weight.assign(rng.normal(size=weight.shape))
        self.level_sizes = self.layer.get_config()["level_sizes"]

    @property
    def weights(self):
        bias = self.layer.bias
        return self.layer.embeddings.numpy(), 0 if bias is None else bias.numpy()

    def expected(self):
        return self.of(self.features, *self.weights)

    def of(self, features, embeddings, bias):
        leaves = self.layer.leaf_of_class.numpy()
        return reference.log_probabilities(features, embeddings, bias, self.level_sizes, leaves)


@pytest.mark.parametrize(
    "counts", [COUNTS, np.ones(64), [1, 1], 2.0 ** np.arange(30), [3, 1, 1, 1, 1, 5, 2]]
)
def test_the_tree_has_the_least_mean_depth(counts):
    counts = np.asarray(counts)
    depths = huffman_depths(counts)
    assert (counts * depths).sum() == pytest.approx(reference.least_cost(counts))
    assert (0.5**depths).sum() == 1  # each decision has two results
    assert np.all(np.diff(depths[np.lexsort([depths, -counts])]) >= 0)


def test_each_class_has_the_leaf_of_its_depth():
    problem = Problem(counts=COUNTS)
    of_leaves = reference.paths(problem.level_sizes)
    found = [len(of_leaves[leaf]) for leaf in problem.layer.leaf_of_class.numpy()]
    np.testing.assert_array_equal(found, huffman_depths(COUNTS))


@EVERY_TREE
def test_the_output_is_log_probabilities_that_sum_to_one(tree):
    problem = Problem(**tree)
    expected = problem.expected()
    found = problem.layer(problem.features).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1, rtol=1e-5)
    ids = tf.constant(RNG.integers(-1, problem.layer.num_classes, (BATCH, 4)))
    own = problem.layer.class_matrix.dots(tf.constant(problem.features), ids)
    expected = np.take_along_axis(expected, np.maximum(ids, 0), axis=1)
    expected = np.where(ids >= 0, expected, tf.float32.min)
    np.testing.assert_allclose(own, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_the_loss_and_its_gradients_equal_the_formula(training):
    problem = Problem(counts=COUNTS)
    features = tf.Variable(problem.features)
    variables = [features, problem.layer.embeddings.value, problem.layer.bias.value]
    loss = losses.HierarchicalSoftmaxLoss(reduction="sum")
    with tf.GradientTape() as tape:
        value = loss(SEVERAL, problem.layer(features, training=training))
    arrays = [np.float64(one.numpy()) for one in variables]

    def expected():
        return hierarchical_softmax.loss(problem.of(*arrays), SEVERAL).sum()

    assert value.numpy() == pytest.approx(expected(), rel=1e-5)
    for gradient, array in zip(tape.gradient(value, variables), arrays, strict=True):
        gradient = tf.convert_to_tensor(gradient).numpy()
        for place in RNG.choice(array.size, 6, replace=False):
            at = np.unravel_index(place, array.shape)
            sums = []
            for step in (1e-4, -1e-4):
                array[at] += step
                sums.append(expected())
                array[at] -= step
            difference = (sums[0] - sums[1]) / 2e-4
            assert gradient[at] == pytest.approx(difference, rel=1e-3, abs=1e-4)


def test_a_loss_of_keras_has_the_same_gradients():
    problem, found = Problem(counts=COUNTS), []
    variables = [weight.value for weight in problem.layer.trainable_weights]
    keras_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for loss in (losses.HierarchicalSoftmaxLoss(), keras_loss):
        with tf.GradientTape() as tape:
            value = loss(LABELS, problem.layer(problem.features, training=True))
        found.append([tf.convert_to_tensor(g) for g in tape.gradient(value, variables)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_large_logits_do_not_overflow():
    problem = Problem(counts=COUNTS)
    found = problem.layer(1000 * problem.features).numpy()
    assert np.all(np.isfinite(found)) and found.min() < -1000
    rows = losses.HierarchicalSoftmaxLoss(reduction=None)(
        LABELS, problem.layer(1000 * problem.features, training=True)
    )
    np.testing.assert_allclose(rows, -found[range(BATCH), LABELS], rtol=1e-4, atol=1e-2)


def test_evaluation_and_predictions_are_exact():
    problem = Problem(counts=COUNTS)
    model = keras.Sequential([keras.Input([DIM]), problem.layer])
    model.compile(
        loss=losses.HierarchicalSoftmaxLoss(),
        metrics=[metrics.PrecisionAtK(1), metrics.RecallAtK(5), metrics.Perplexity()],
        run_eagerly=True,
    )
    found = model.evaluate(problem.features, LABELS, verbose=0, return_dict=True)
    log_p = problem.expected()
    own = log_p[range(BATCH), LABELS]
    ranks = np.sum(log_p > own[:, np.newaxis], axis=1)
    assert found["loss"] == pytest.approx(-own.mean(), rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(-own.mean()), rel=1e-5)
    assert found["precision_at_1"] == pytest.approx(np.mean(ranks < 1))
    assert found["recall_at_5"] == pytest.approx(np.mean(ranks < 5))
    order = np.argsort(-log_p, axis=1)
    expected = np.take_along_axis(log_p, order, axis=1)
    for k in (1, 5, N):
        scores, ids = problem.layer.top_k(problem.features, k)
        np.testing.assert_array_equal(ids, order[:, :k])
        np.testing.assert_allclose(scores, expected[:, :k], rtol=1e-4, atol=1e-5)
    some = np.array([2, 7, 30])
    found, ids = retrieval.predict_top_k(
        model, problem.features, 2, allowed=some, scores="softmax", verbose=0
    )
    np.testing.assert_array_equal(ids, some[np.argsort(-log_p[:, some], axis=1)[:, :2]])
    expected = np.exp(np.take_along_axis(log_p, ids, axis=1))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    predicted = model.predict(problem.features, verbose=0)
    np.testing.assert_allclose(predicted, log_p, rtol=1e-4, atol=1e-5)


def test_training_metrics_are_exact_or_not_known():
    problem = Problem(counts=COUNTS)
    logits = problem.layer(problem.features, training=True)
    loss = losses.HierarchicalSoftmaxLoss()(LABELS, logits)
    perplexity, precision = metrics.Perplexity(), metrics.PrecisionAtK(1)
    for metric in (perplexity, precision):
        metric.update_state(LABELS, logits)
    np.testing.assert_allclose(perplexity.result(), np.exp(loss), rtol=1e-5)
    assert np.isnan(precision.result())


@pytest.mark.slow
def test_a_saved_model_continues_like_the_original(tmp_path):
    problem = Problem(counts=COUNTS)
    model = keras.Sequential([keras.Input([DIM]), problem.layer])
    model.compile(optimizers.LazyAdam(0.1), losses.HierarchicalSoftmaxLoss(), run_eagerly=True)
    before = model.train_on_batch(problem.features, LABELS)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    for one in (model, loaded):
        one.run_eagerly = True
        assert one.train_on_batch(problem.features, LABELS) < before
    np.testing.assert_array_equal(loaded(problem.features), model(problem.features))
    np.testing.assert_array_equal(loaded.layers[-1].leaf_of_class, problem.layer.leaf_of_class)


@pytest.mark.slow
@pytest.mark.parametrize("ops", slow_but(["core"], ["core", "custom"]))
def test_an_export_finds_the_best_classes(ops, tmp_path):
    problem = Problem(counts=COUNTS)
    model = keras.Sequential([keras.Input([DIM]), problem.layer])
    serving.export(model, tmp_path / "1", k=4, ops=ops)
    served = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    found = served(features=tf.constant(problem.features))
    order = np.argsort(-problem.expected(), axis=1)[:, :4]
    np.testing.assert_array_equal(found["ids"], order)


def test_the_config_has_the_shape_of_the_tree_and_no_array():
    clone = harness.config_round_trip(
        layers.HuffmanOutput(N, COUNTS, use_bias=False, name="head")
    )
    clone.build((None, DIM))
    np.testing.assert_allclose(np.exp(clone(np.ones([1, DIM]))).sum(), 1, rtol=1e-5)


def test_positions_of_sequences_are_examples():
    problem = Problem(counts=COUNTS)
    features = problem.features.reshape(2, 3, DIM)
    found = problem.layer(features)
    np.testing.assert_allclose(
        np.reshape(found, [BATCH, N]), problem.expected(), rtol=1e-4, atol=1e-5
    )
    loss = losses.HierarchicalSoftmaxLoss()(LABELS.reshape(2, 3), found)
    own = problem.expected()[range(BATCH), LABELS]
    np.testing.assert_allclose(loss, -own.mean(), rtol=1e-5)


@pytest.mark.parametrize("num_classes", [1, 0, -3, 2.0])
def test_fewer_than_two_classes_raise_an_error(num_classes):
    with pytest.raises(ValueError, match=f"of at least 2. Received: num_classes={num_classes}"):
        layers.HuffmanOutput(num_classes)


@pytest.mark.parametrize("bad", [0, -1, np.nan, np.inf])
def test_counts_that_are_not_positive_raise_an_error(bad):
    counts = np.float64(COUNTS)
    counts[7] = bad
    with pytest.raises(ValueError, match=rf"counts\[7\]={counts[7]}.*np.maximum\(counts, 1\)"):
        layers.HuffmanOutput(N, counts)


@pytest.mark.parametrize("bad", [COUNTS[1:], COUNTS[:, np.newaxis], ["a"] * N, COUNTS > 1])
def test_counts_of_another_form_raise_an_error(bad):
    with pytest.raises(ValueError, match=rf"`counts` must be {N} positive numbers.*Received"):
        layers.HuffmanOutput(N, bad)


def test_class_rows_and_absolute_rankings_raise_an_error():
    problem = Problem()
    with pytest.raises(ValueError, match="whose classes have no rows.*`top_k`"):
        problem.layer.class_embeddings()
    with pytest.raises(ValueError, match="absolute=True. Leave `absolute` out"):
        problem.layer.top_k(problem.features, 1, absolute=True)
    logits = problem.layer(problem.features, training=True)
    with pytest.raises(ValueError, match="SampledSoftmaxLoss cannot .* HuffmanOutput"):
        losses.SampledSoftmaxLoss()(LABELS, logits)
