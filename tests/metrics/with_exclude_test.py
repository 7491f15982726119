"""Evaluation without classes that are excluded for each example."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.metrics.table import METRICS, NUM_CLASSES, SHORT, Problem
from tests.reference import metrics as reference
from tests.slow import slow_but


class Seen(Problem):
    """Excludes classes: other ones per example, some of them repeated, and some labels."""

    def __init__(self, shape=(23,), width=9, **kwargs):
        super().__init__(shape, **kwargs)
        self.exclude = np.random.default_rng(5).integers(-1, NUM_CLASSES, (*shape, width))
        self.exclude[2] = -1
        self.exclude[3, ..., 0] = self.labels[3, ..., 0] = 7
        self.exclude[4, ..., 1] = self.exclude[4, ..., 0] = 8

    def y(self):
        return tflo.metrics.with_exclude(self.labels, self.exclude)

    def expected(self, name):
        logits, labels, weights = self.flat()
        if not name.startswith("Perplexity"):
            logits = reference.without(logits, self.exclude.reshape(len(logits), -1))
        return METRICS[name][1](logits, labels, weights)


@pytest.mark.parametrize("shape", [(23,), (5, 4)])
@pytest.mark.parametrize("name", slow_but(SHORT, METRICS))
def test_excluded_classes_are_not_ranked(name, shape):
    problem = Seen(shape)
    metric = METRICS[name][0]()
    metric.update_state(problem.y(), problem.logits(), problem.weights)
    np.testing.assert_allclose(metric.result(), problem.expected(name), rtol=1e-5)


@pytest.mark.slow
def test_plain_evaluate_excludes_and_the_loss_does_not_change():
    problem = Seen()
    model = keras.Sequential([keras.Input((8,)), problem.layer])
    names = [*SHORT, "NDCG"]
    metrics = [METRICS[name][0]() for name in names]
    model.compile(loss=tflo.losses.SampledSoftmaxLoss(), weighted_metrics=metrics)
    columns = (problem.features, problem.labels, problem.exclude, problem.weights)
    data = tf.data.Dataset.from_tensor_slices(columns).batch(9)
    data = data.map(lambda x, y, seen, w: (x, tflo.metrics.with_exclude(y, seen), w))
    found = model.evaluate(data, verbose=0, return_dict=True)
    for metric, name in zip(metrics, names, strict=True):
        expected = problem.expected(name)
        np.testing.assert_allclose(found[metric.name], expected, rtol=1e-5, err_msg=name)
    model.compile(loss=tflo.losses.SampledSoftmaxLoss(), weighted_metrics=["ndcg"])
    arrays, without = (
        model.evaluate(problem.features, y, 9, 0, problem.weights, return_dict=True)
        for y in (problem.y(), problem.labels)
    )
    assert arrays == pytest.approx({name: found[name] for name in ("loss", "ndcg")})
    assert without["loss"] == pytest.approx(found["loss"], rel=1e-6)
    assert without["ndcg"] != pytest.approx(found["ndcg"])


LAYERS = {
    "sharded": lambda: tflo.layers.LargeOutput(NUM_CLASSES, num_shards=3),
    "factored": lambda: tflo.layers.FactoredOutput(NUM_CLASSES, 0.1),
    "hierarchical": lambda: tflo.layers.HierarchicalOutput(NUM_CLASSES),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_other_layers_exclude(layer):
    problem = Seen()
    problem.layer = LAYERS[layer]()
    problem.layer.build(problem.features.shape)
    for name in ("NDCG", "MeanAveragePrecision-3", "AveragePopularityAtK-4"):
        metric = METRICS[name][0]()
        metric.update_state(problem.y(), problem.logits(), problem.weights)
        np.testing.assert_allclose(metric.result(), problem.expected(name), rtol=1e-5)


def test_equal_scores_rank_by_the_lower_id_without_the_excluded_classes():
    problem = Problem(shape=(4,))
    problem.layer.embeddings.assign(np.zeros((NUM_CLASSES, 8)))
    y = tflo.metrics.with_exclude([5, 5, 5, 5], [[-1, -1], [3, 9], [0, 4], [5, 1]])
    metric = tflo.metrics.MeanReciprocalRank()
    found = []
    for example in range(4):
        part = problem.layer(tf.constant(problem.features[example : example + 1]))
        metric.reset_state()
        metric.update_state(y[example : example + 1], part)
        found.append(float(metric.result()))
    np.testing.assert_allclose(found, [1 / 6, 1 / 5, 1 / 4, 0])


def test_an_excluded_label_is_not_found_even_if_k_is_the_number_of_classes():
    problem = Problem(shape=(4,), num_labels=1)
    problem.labels[:] = 5
    y = tflo.metrics.with_exclude(problem.labels, [[5], [1], [-1], [5]])
    metric = tflo.metrics.RecallAtK(NUM_CLASSES)
    metric.update_state(y, problem.logits())
    assert float(metric.result()) == 0.5


def test_exclusions_of_all_forms_are_equal():
    labels = np.array([3, 1])
    expected = tflo.metrics.with_exclude(labels, [[4, 2], [5, -1]])
    for exclude in ([{2, 4}, [5]], tf.ragged.constant([[4, 2], [5]])):
        found = tflo.metrics.with_exclude(labels[:, np.newaxis], exclude)
        np.testing.assert_array_equal(np.sort(found), np.sort(expected))
    assert expected.dtype == tf.int64


def test_training_ignores_exclusions():
    problem = Seen(num_labels=1)
    problem.labels = problem.labels[:, 0]
    histories = []
    for y in (problem.labels, problem.y()):
        sampler = tflo.samplers.UniformSampler(20, seed=1)
        rows = keras.initializers.RandomNormal(seed=2)
        layer = tflo.layers.LargeOutput(NUM_CLASSES, sampler, embeddings_initializer=rows)
        model = keras.Sequential([keras.Input((8,)), layer])
        metrics = ["ndcg_at_10", tflo.metrics.CatalogCoverageAtK(3, NUM_CLASSES)]
        model.compile("sgd", "sampled_softmax_loss", metrics=metrics, run_eagerly=True)
        histories.append(model.fit(problem.features, y, verbose=0, shuffle=False).history)
    assert 0 < histories[0]["ndcg_at_10"][0] < 1
    for name, values in histories[0].items():
        np.testing.assert_allclose(values, histories[1][name], rtol=1e-6, err_msg=name)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("wrong", [NUM_CLASSES, 2**40])
def test_excluded_ids_out_of_range_raise_an_error(wrong, compiled):
    problem, metric = Problem(num_labels=1), tflo.metrics.NDCG()

    def update(y):
        metric.update_state(y, problem.logits())

    y = tflo.metrics.with_exclude(problem.labels, [[wrong, -1]] * 23)
    message = rf"(?s)`exclude` must be class ids in \[0, 41\).*to.*{wrong}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        (tf.function(update) if compiled else update)(y)


@pytest.mark.parametrize("labels", [[-2, 3], [-100, 3], [-(2**63), 3]])
def test_other_negative_labels_still_raise_an_error(labels):
    problem = Problem(shape=(2,))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Labels must be class ids"):
        tflo.metrics.NDCG().update_state(np.array([labels, labels]), problem.logits())


@pytest.mark.parametrize(
    "labels, exclude, message",
    [
        ([1, 2], [3, 4], "a row of class ids for each example.*Received"),
        ([1, 2], [[3], [4], [5]], "a row of class ids for each example.*Received"),
        ([[1], [2]], [[[3]], [[4]], [[5]]], "a row of class ids for each example.*Received"),
        ([1, 2], [[3.5], [4.0]], "`exclude` must be integer"),
        ([1.5, 2.0], [[3], [4]], "Labels must be integer"),
    ],
)
def test_wrong_arguments_raise_an_error(labels, exclude, message):
    with pytest.raises(ValueError, match=message):
        tflo.metrics.with_exclude(labels, exclude)
