"""Metrics on JAX against NumPy: sequences of several labels, weights, masks, exclusions."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import scipy.sparse

from tests.reference import metrics as reference
from tf_largeout.jax import layers, losses, metrics, samplers
from tf_largeout.jax.steps import tag_of

N = 41
# The metrics, and their names in the reference.
METRICS = {
    "precision_at_5": (lambda: metrics.PrecisionAtK(5), "precision_at_k", 5),
    "recall_at_5": (lambda: metrics.RecallAtK(5), "recall_at_k", 5),
    "hit_rate_at_5": (lambda: metrics.HitRateAtK(5), "hit_rate_at_k", 5),
    "ndcg": (metrics.NDCG, "ndcg", None),
    "ndcg_at_3": (lambda: metrics.NDCG(3), "ndcg", 3),
    "mean_reciprocal_rank": (metrics.MeanReciprocalRank, "mean_reciprocal_rank", None),
    "mean_average_precision_at_3": (
        lambda: metrics.MeanAveragePrecision(3),
        "mean_average_precision",
        3,
    ),
    "perplexity": (metrics.Perplexity, "perplexity", None),
}


class Problem:
    """A layer, features, labels with repeats and padding, weights and a mask."""

    def __init__(self, shape=(23,), num_labels=4):
        random = np.random.default_rng(0)
        self.layer = layers.LargeOutput(N, bias_initializer="random_normal")
        self.features = random.normal(size=(*shape, 8)).astype("float32")
        self.layer.build(self.features.shape)
        self.layer.embeddings.assign(random.normal(size=(N, 8)))
        self.labels = random.integers(-1, N, (*shape, num_labels)).astype("int32")
        self.labels[0], self.labels[1, ..., -1] = -1, self.labels[1, ..., 0]
        self.weights = random.uniform(0.5, 2, shape).astype("float32")
        self.mask = random.uniform(size=shape) < 0.8
        self.exclude = random.integers(-1, N, (*shape, 6)).astype("int32")
        self.exclude[3, ..., 0] = self.labels[3, ..., 0] = 7

    def outputs(self):
        return self.layer(jnp.asarray(self.features))

    def expected(self, name, weights, exclude=None):
        logits = np.asarray(self.outputs()).reshape(-1, N).astype("float64")
        labels, weights = self.labels.reshape(len(logits), -1), weights.reshape(-1)
        _, oracle, k = METRICS[name]
        if oracle == "perplexity":
            return reference.perplexity(logits, labels, weights)
        if exclude is not None:
            logits = reference.without(logits, exclude.reshape(len(logits), -1))
        return getattr(reference, oracle)(logits, labels, k, weights)


def test_metrics_of_sequences_equal_the_reference():
    problem, found = Problem((5, 4)), {name: one[0]() for name, one in METRICS.items()}
    y = metrics.with_exclude(problem.labels, problem.exclude)
    problem.outputs()

    @jax.jit
    def compute(*batches):
        logits = problem.outputs(), problem.outputs()
        tag_of(logits[1], "test").mask = jnp.asarray(problem.mask)
        results = {}
        for name, metric in found.items():
            start = [one.value for one in metric.variables]
            nothing, states = metric.stateless_result(start), []
            for (y, *weights), y_pred in zip(batches, logits, strict=True):
                states.append(metric.stateless_update_state(start, y, y_pred, *weights))
            results[name] = nothing, *map(metric.stateless_result, states)
        return results

    ones = np.ones((5, 4))
    for name, values in compute((problem.labels,), (y, problem.weights)).items():
        weights = problem.weights * problem.mask
        expected = (
            problem.expected(name, ones),
            problem.expected(name, weights, problem.exclude),
        )
        np.testing.assert_allclose(values, (np.nan, *expected), rtol=1e-5, err_msg=name)
        assert found[name].name == name
    problem.labels[2, 0, 0] = N
    for _, value, _ in compute((problem.labels,), (y, problem.weights)).values():
        assert np.isnan(value)


def test_evaluate_and_fit_compute_metrics():
    problem = Problem()
    sampler = samplers.UniformSampler(10, seed=1)
    output = layers.LargeOutput(N, sampler, embeddings_initializer="random_normal")
    model = keras.Sequential([keras.Input((8,)), output])
    named = {name: one[0]() for name, one in METRICS.items()}
    model.compile("sgd", losses.SampledSoftmaxLoss(), weighted_metrics=[*named.values()])
    arrays = problem.features, problem.labels
    trained = model.fit(*arrays, sample_weight=problem.weights, verbose=0).history
    assert np.isnan(trained["perplexity"][0]) and 0 < trained["ndcg"][0] < 1
    problem.layer = output
    y = metrics.with_exclude(problem.labels, problem.exclude)
    found = model.evaluate(problem.features, y, 9, 0, problem.weights, return_dict=True)
    assert trained["recall_at_5"][0] > found["recall_at_5"]  # Fewer rivals.
    for name in METRICS:
        expected = problem.expected(name, problem.weights, problem.exclude)
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, err_msg=name)


def test_sums_of_very_many_examples_are_exact():
    total, rest = (keras.Variable(0.0) for _ in range(2))

    def add(state, _):
        with keras.StatelessScope([(total, state[0]), (rest, state[1])]) as scope:
            metrics.add_exactly(total, rest, jnp.float32(0.1))
        return (scope.get_current_value(total), scope.get_current_value(rest)), None

    (high, low), _ = jax.lax.scan(add, (0.0, 0.0), length=10**7)
    expected = 10**7 * float(np.float32(0.1))
    assert float(high) + float(low) == pytest.approx(expected, rel=1e-8)


def test_configs_make_equal_metrics():
    for name, (make, *_) in METRICS.items():
        config = keras.saving.serialize_keras_object(make())
        assert config["registered_name"].startswith("tf_largeout>")
        made = keras.saving.deserialize_keras_object(config)
        assert made.name == name and made.get_config() == make().get_config()


def test_exclusions_of_all_forms_are_equal():
    expected = [[3, 2 - 2**31, 4 - 2**31], [1, 5 - 2**31, -1]]
    matrix = scipy.sparse.csr_matrix(([1, 1, 1, 0], ([0, 0, 1, 1], [2, 4, 5, 6])))
    for exclude in ([{2, 4}, [5]], [[2, 4], [5, -1]], np.int8([[2, 4], [5, -1]]), matrix):
        found = metrics.with_exclude(np.array([3, 1]), exclude)
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == "int32"


WRONG = {
    "k": (lambda: metrics.PrecisionAtK(0), "`k` must be a positive integer"),
    "no k": (lambda: metrics.RecallAtK(None), "`k` must be a positive integer"),
    "absolute": (lambda: metrics.NDCG(absolute=True), "needs Keras's TensorFlow backend"),
    "top_k": (lambda: metrics.NDCG(top_k=3), "Its name is `k`"),
    "rows": (lambda: metrics.with_exclude([1, 2], [3, 4]), "a row of class ids for each"),
    "floats": (lambda: metrics.with_exclude([1, 2], [[3.5], [4.0]]), "`exclude` must be int"),
    "large": (lambda: metrics.with_exclude([1, 2], [[2**31], [4]]), "`exclude` must be class"),
    "k > N": (lambda: update(metrics.NDCG(N + 1), [1] * 23), f"k=42.*only {N} classes"),
    "range": (lambda: update(metrics.NDCG(), [N] * 23), "cannot use its labels.*class ids"),
    "excluded": (
        lambda: update(metrics.NDCG(), metrics.with_exclude([1] * 23, [[N]] * 23)),
        "cannot use its labels",
    ),
    "shape": (lambda: update(metrics.NDCG(), [1] * 22), "Labels must be integer class ids"),
    "weights": (lambda: update(metrics.NDCG(), [1] * 23, [1.0] * 22), "`sample_weight` must"),
    "other": (
        lambda: metrics.NDCG().update_state([1], jnp.zeros((1, N))),
        "NDCG needs the direct output",
    ),
}


def update(metric, labels, weights=None):
    metric.update_state(np.array(labels), Problem().outputs(), weights)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_raise_an_error(name):
    call, message = WRONG[name]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        call()
