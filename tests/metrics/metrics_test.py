import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import harness
from tests.reference import metrics as reference
from tests.slow import slow_but

NUM_CLASSES = 41
COUNTS = np.arange(NUM_CLASSES) ** 2


def psp(k, **kwargs):
    return tflo.metrics.PropensityScoredPrecisionAtK(
        k, COUNTS, num_examples=500, a=0.6, b=2.6, **kwargs
    )


def psp_reference(k):
    def value(logits, labels, weights=None):
        return reference.propensity_scored_precision_at_k(
            logits, labels, k, COUNTS, 500, 0.6, 2.6, weights
        )

    return value


def at_k(function, k):
    return lambda logits, labels, weights=None: function(logits, labels, k, weights)


def of_absolute(oracle):
    def value(logits, labels, weights=None):
        scores = np.where(logits == -np.inf, logits, np.abs(logits))  # -inf: excluded
        return oracle(scores, labels, weights)

    return value


def popularity_reference(k):
    def value(logits, labels, weights=None):
        return reference.average_popularity_at_k(logits, labels, k, COUNTS, weights)

    return value


# Every public metric: its constructor and its oracle.
METRICS = {
    "PrecisionAtK-1": (
        lambda: tflo.metrics.PrecisionAtK(1),
        at_k(reference.precision_at_k, 1),
    ),
    "PrecisionAtK-5": (
        lambda: tflo.metrics.PrecisionAtK(5),
        at_k(reference.precision_at_k, 5),
    ),
    "RecallAtK-5": (lambda: tflo.metrics.RecallAtK(5), at_k(reference.recall_at_k, 5)),
    "PropensityScoredPrecisionAtK-1": (lambda: psp(1), psp_reference(1)),
    "PropensityScoredPrecisionAtK-3": (lambda: psp(3), psp_reference(3)),
    "Perplexity": (tflo.metrics.Perplexity, reference.perplexity),
    "HitRateAtK-5": (lambda: tflo.metrics.HitRateAtK(5), at_k(reference.hit_rate_at_k, 5)),
    "NDCG": (tflo.metrics.NDCG, at_k(reference.ndcg, None)),
    "NDCG-3": (lambda: tflo.metrics.NDCG(3), at_k(reference.ndcg, 3)),
    "NDCG-10-absolute": (
        lambda: tflo.metrics.NDCG(10, absolute=True),
        of_absolute(at_k(reference.ndcg, 10)),
    ),
    "MeanReciprocalRank": (
        tflo.metrics.MeanReciprocalRank,
        at_k(reference.mean_reciprocal_rank, None),
    ),
    "MeanReciprocalRank-5": (
        lambda: tflo.metrics.MeanReciprocalRank(5),
        at_k(reference.mean_reciprocal_rank, 5),
    ),
    "MeanAveragePrecision": (
        tflo.metrics.MeanAveragePrecision,
        at_k(reference.mean_average_precision, None),
    ),
    "MeanAveragePrecision-3": (
        lambda: tflo.metrics.MeanAveragePrecision(3),
        at_k(reference.mean_average_precision, 3),
    ),
    "MacroRecallAtK-5": (
        lambda: tflo.metrics.MacroRecallAtK(5, NUM_CLASSES),
        at_k(reference.macro_recall_at_k, 5),
    ),
    "CatalogCoverageAtK-1": (
        lambda: tflo.metrics.CatalogCoverageAtK(1, NUM_CLASSES),
        at_k(reference.catalog_coverage_at_k, 1),
    ),
    "CatalogCoverageAtK-2-absolute": (
        lambda: tflo.metrics.CatalogCoverageAtK(2, NUM_CLASSES, absolute=True),
        of_absolute(at_k(reference.catalog_coverage_at_k, 2)),
    ),
    "AveragePopularityAtK-4": (
        lambda: tflo.metrics.AveragePopularityAtK(4, COUNTS),
        popularity_reference(4),
    ),
    "PrecisionAtK-5-absolute": (
        lambda: tflo.metrics.PrecisionAtK(5, absolute=True),
        of_absolute(at_k(reference.precision_at_k, 5)),
    ),
    "RecallAtK-5-absolute": (
        lambda: tflo.metrics.RecallAtK(5, absolute=True),
        of_absolute(at_k(reference.recall_at_k, 5)),
    ),
    "PropensityScoredPrecisionAtK-3-absolute": (
        lambda: psp(3, absolute=True),
        of_absolute(psp_reference(3)),
    ),
    "Perplexity-absolute": (
        lambda: tflo.metrics.Perplexity(absolute=True),
        of_absolute(reference.perplexity),
    ),
}


# One base class implements ranks by absolute values.
SHORT = ["RecallAtK-5", "PropensityScoredPrecisionAtK-3", "Perplexity"]
SHORT += ["PrecisionAtK-5-absolute", "Perplexity-absolute", "HitRateAtK-5", "NDCG-3"]
SHORT += ["MeanReciprocalRank-5", "MeanAveragePrecision-3", "MacroRecallAtK-5"]
SHORT += ["CatalogCoverageAtK-1", "AveragePopularityAtK-4"]


@pytest.fixture(params=slow_but(SHORT, METRICS))
def member(request):
    make, oracle = METRICS[request.param]
    return make(), oracle


def test_every_public_metric_is_in_the_table():
    assert {name.split("-")[0] for name in METRICS} == {
        name for name in tflo.metrics.__all__ if inspect.isclass(getattr(tflo.metrics, name))
    }


class Problem:
    def __init__(self, shape=(23,), num_labels=4, seed=0):
        rng = np.random.default_rng(seed)
        self.layer = tflo.layers.LargeOutput(NUM_CLASSES)
        self.features = rng.normal(size=(*shape, 8)).astype(np.float32)
        self.layer.build(self.features.shape)
        self.layer.embeddings.assign(rng.normal(size=(NUM_CLASSES, 8)))
        self.labels = rng.integers(-1, NUM_CLASSES, (*shape, num_labels))
        self.labels[0] = -1
        self.labels[1] = self.labels[1, ..., :1]
        self.weights = rng.uniform(size=shape)

    def logits(self, training=False):
        return self.layer(tf.constant(self.features), training=training)

    def flat(self):
        """Returns logits, labels and weights as the oracles expect them."""
        logits = np.float64(self.logits()).reshape(-1, NUM_CLASSES)
        return logits, self.labels.reshape(len(logits), -1), self.weights.reshape(-1)


def test_the_value_equals_numpy(member):
    metric, oracle = member
    problem = Problem()
    metric.update_state(problem.labels, problem.logits())
    logits, labels, _ = problem.flat()
    np.testing.assert_allclose(metric.result(), oracle(logits, labels), rtol=1e-5)
    assert oracle(logits, labels) > 0


def test_sample_weights_apply_to_examples(member):
    metric, oracle = member
    problem = Problem(shape=(5, 4))
    metric.update_state(problem.labels, problem.logits(), problem.weights)
    np.testing.assert_allclose(metric.result(), oracle(*problem.flat()), rtol=1e-5)


def test_weights_of_a_sequence_apply_to_all_positions(member):
    metric, oracle = member
    problem = Problem(shape=(5, 4))
    problem.weights[:] = problem.weights[:, :1]
    metric.update_state(problem.labels, problem.logits(), problem.weights[:, 0])
    np.testing.assert_allclose(metric.result(), oracle(*problem.flat()), rtol=1e-5)


def test_weights_of_the_labels_raise_an_error(member):
    metric, _ = member
    problem = Problem()
    with pytest.raises(ValueError, match="`sample_weight` must have.*Received: shape"):
        metric.update_state(problem.labels, problem.logits(), np.ones(problem.labels.shape))


def test_two_batches_equal_one(member):
    metric, oracle = member
    problem = Problem()
    logits, labels, _ = problem.flat()
    for rows in (slice(0, 10), slice(10, 23)):
        part = problem.layer(tf.constant(problem.features[rows]))
        metric.update_state(problem.labels[rows], part)
    np.testing.assert_allclose(metric.result(), oracle(logits, labels), rtol=1e-5)
    metric.reset_state()
    metric.update_state(problem.labels, problem.logits())
    np.testing.assert_allclose(metric.result(), oracle(logits, labels), rtol=1e-5)


def test_a_batch_without_any_label_adds_nothing(member):
    metric, oracle = member
    problem = Problem()
    metric.update_state(problem.labels, problem.logits())
    metric.update_state(problem.labels[:, :0], problem.logits())
    logits, labels, _ = problem.flat()
    np.testing.assert_allclose(metric.result(), oracle(logits, labels), rtol=1e-5)


def test_a_config_makes_the_same_metric(member):
    metric, _ = member
    problem = Problem()
    config = keras.saving.serialize_keras_object(metric)
    copy = keras.saving.deserialize_keras_object(config)
    for each in (metric, copy):
        each.update_state(problem.labels, problem.logits())
    assert copy.name == metric.name
    assert float(copy.result()) == float(metric.result())


def test_evaluate_gives_exact_values_for_all_metrics():
    problem = Problem()
    model = keras.Sequential([keras.Input((8,)), problem.layer])
    metrics = [make() for make, _ in METRICS.values()]
    model.compile(loss=tflo.losses.SampledSoftmaxLoss(), weighted_metrics=metrics)
    found = model.evaluate(
        problem.features,
        problem.labels,
        sample_weight=problem.weights,
        batch_size=9,
        verbose=0,
        return_dict=True,
    )
    for metric, (_, oracle) in zip(metrics, METRICS.values(), strict=True):
        np.testing.assert_allclose(found[metric.name], oracle(*problem.flat()), rtol=1e-5)


@pytest.mark.parametrize("absolute", [False, True])
def test_a_training_step_ranks_labels_among_the_candidates(absolute):
    problem = Problem()
    logits, labels, _ = problem.flat()
    logits = np.abs(logits) if absolute else logits
    ones = np.ones(4)
    values = harness.sampled_values([3, 4, 5, 3], np.ones(labels.shape), ones)
    problem.layer.sampler = harness.FixedSampler(values)
    lazy_logits = problem.logits(training=True)
    tflo.losses.SampledSoftmaxLoss()(problem.labels, lazy_logits)
    metric = tflo.metrics.PrecisionAtK(1, absolute=absolute)
    metric.update_state(problem.labels, lazy_logits)
    seen = [sorted({3, 4, 5, *(label for label in row if label >= 0)}) for row in labels]
    hits = [
        seen[b][int(np.argmax(logits[b, seen[b]]))] in row
        for b, row in enumerate(labels)
        if (row >= 0).any()
    ]
    np.testing.assert_allclose(metric.result(), np.mean(hits), rtol=1e-6)


def test_a_metric_with_other_labels_than_the_loss_raises_an_error():
    problem = Problem()
    values = harness.sampled_values([3, 4], np.ones((len(problem.flat()[1]), 1)), np.ones(2))
    problem.layer.sampler = harness.FixedSampler(values)
    logits = problem.logits(training=True)
    tflo.losses.SampledSoftmaxLoss()(problem.labels, logits)
    metric = tflo.metrics.PrecisionAtK(1)
    metric.update_state(problem.labels.copy(), logits)
    assert np.isfinite(metric.result())
    with pytest.raises(tf.errors.InvalidArgumentError, match="different labels"):
        metric.update_state(problem.labels[..., ::-1], logits)


def test_a_training_step_without_candidates_leaves_the_state(member):
    metric, _ = member
    problem = Problem()
    metric.update_state(problem.labels, problem.logits(training=True))
    assert all(not np.any(variable) for variable in metric.variables)


def test_training_with_the_exact_loss_gives_exact_metrics():
    problem = Problem()
    expected = reference.perplexity(*problem.flat()[:2])
    model = keras.Sequential([keras.Input((8,)), problem.layer])
    metric = tflo.metrics.Perplexity()
    model.compile("sgd", loss=tflo.losses.SoftmaxLoss(), metrics=[metric])
    history = model.fit(problem.features, problem.labels, batch_size=23, verbose=0).history
    np.testing.assert_allclose(history["perplexity"][0], expected, rtol=1e-5)


def test_recalls_of_classes_are_those_since_the_reset():
    problem = Problem()
    metric = tflo.metrics.MacroRecallAtK(5, NUM_CLASSES)
    metric.update_state(problem.labels, problem.logits(), problem.weights)
    expected = reference.class_recalls(*problem.flat()[:2], 5, problem.weights)
    np.testing.assert_allclose(metric.class_recalls(), expected, rtol=1e-6)
    assert np.isnan(expected).any() and (expected > 0).any()
    metric.reset_state()
    assert np.isnan(metric.class_recalls()).all()


@pytest.mark.slow
def test_replicas_add_up_to_the_value_of_one():
    problem = Problem()
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        metrics = [make() for make, _ in METRICS.values()]
        model = keras.Sequential([keras.Input((8,)), tflo.layers.LargeOutput(NUM_CLASSES)])
        model.compile(loss=tflo.losses.SoftmaxLoss(), weighted_metrics=metrics)
    model.layers[-1].set_weights([one.numpy() for one in problem.layer.weights])
    columns = (problem.features, problem.labels, problem.weights)
    data = tf.data.Dataset.from_tensor_slices(columns).batch(8)
    found = model.evaluate(data, verbose=0, return_dict=True)
    for metric, (_, oracle) in zip(metrics, METRICS.values(), strict=True):
        np.testing.assert_allclose(found[metric.name], oracle(*problem.flat()), rtol=1e-5)


def test_counts_above_float32_precision_are_exact():
    metric = tflo.metrics.PrecisionAtK(1)
    metric.denominator.assign(2.0**25)
    metric.numerator.assign(2.0**25)
    problem = Problem(num_labels=1)
    metric.update_state(problem.labels, problem.logits())
    added = np.sum(problem.labels >= 0)
    assert float(metric.denominator) == 2.0**25 + added


def test_other_predictions_raise_an_error(member):
    with pytest.raises(ValueError, match="direct output of a `LargeOutput`"):
        member[0].update_state([1, 2], tf.zeros([2, NUM_CLASSES]))


AT_K = [
    (tflo.metrics.PrecisionAtK, (), True),
    (tflo.metrics.NDCG, (), False),
    (tflo.metrics.MacroRecallAtK, (NUM_CLASSES,), True),
    (tflo.metrics.CatalogCoverageAtK, (NUM_CLASSES,), True),
    (tflo.metrics.AveragePopularityAtK, (COUNTS,), True),
]


@pytest.mark.parametrize("cls, others, needs_k", AT_K)
@pytest.mark.parametrize("k", [0, -1, 1.5, True, "many", None])
def test_a_wrong_k_raises_an_error(k, cls, others, needs_k):
    if k is None and not needs_k:
        assert cls(k, *others).name == "ndcg"
        return
    with pytest.raises(ValueError, match="`k` must be a positive integer"):
        cls(k, *others)


@pytest.mark.parametrize("cls, others, _", AT_K)
def test_a_k_above_the_number_of_classes_is_refused(cls, others, _):
    problem = Problem()
    with pytest.raises(ValueError, match=f"k=42 best classes.*only {NUM_CLASSES}.*smaller"):
        cls(NUM_CLASSES + 1, *others).update_state(problem.labels, problem.logits())
    cls(NUM_CLASSES, *others).update_state(problem.labels, problem.logits())


@pytest.mark.parametrize(
    "counts,message",
    [
        ([[1, 2]], "one per class"),
        ([1, -2, 9], "not negative"),
        ([1, 1], "at least 3"),
        ([1, 0.5, 9], "whole numbers.*Received 0.5"),
    ],
)
def test_wrong_counts_raise_an_error(counts, message):
    with pytest.raises(ValueError, match=message):
        tflo.metrics.PropensityScoredPrecisionAtK(1, counts)


@pytest.mark.parametrize("constants", [{"a": -1}, {"b": 0}, {"b": -1}, {"a": "x"}])
def test_invalid_propensity_constants_raise_an_error(constants):
    with pytest.raises(ValueError, match="`[ab]` must be a number"):
        tflo.metrics.PropensityScoredPrecisionAtK(1, [5, 5, 5], **constants)


@pytest.mark.parametrize(
    "metric, message",
    [
        (tflo.metrics.PropensityScoredPrecisionAtK(1, [5, 5, 5]), "41 classes.*3 counts"),
        (tflo.metrics.AveragePopularityAtK(1, [5, 5, 5]), "41 classes.*3 counts"),
        (tflo.metrics.MacroRecallAtK(1, 3), "layer.*, 41. Received: num_classes=3"),
        (tflo.metrics.CatalogCoverageAtK(1, 3), "layer.*, 41. Received: num_classes=3"),
    ],
)
def test_another_number_of_classes_raises_an_error(metric, message):
    problem = Problem()
    with pytest.raises(ValueError, match=message):
        metric.update_state(problem.labels, problem.logits())
