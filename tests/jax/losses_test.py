"""Losses and their gradients against the NumPy formulas, with given negatives."""

import functools

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

from tests.reference import losses as reference
from tf_largeout.jax import losses, samplers
from tf_largeout.jax.layers import LargeOutput

N, DIM, BATCH = 12, 5, 4
SHARED = [3, 7, 7, 1, 10, 0]
LABELS = np.array([[3, 5, -1], [0, -1, -1], [-1, -1, -1], [11, 3, 2]], np.int32)
OWN = np.array([[1, 3, -1], [4, 9, 0], [2, 3, 5], [8, 2, -1]], np.int32)
rng = np.random.default_rng(0)
FEATURES = rng.standard_normal((BATCH, DIM)).astype(np.float32)
TABLE = rng.standard_normal((N, DIM)).astype(np.float32)
BIAS = rng.standard_normal(N).astype(np.float32)
COUNTS = rng.uniform(0.2, 2.0, N)
WEIGHTS = rng.uniform(0.0, 2.0, N).astype(np.float32)


class FixedSampler(samplers.Sampler):
    """Returns given classes: shared ones, or a head of each example and a shared tail."""

    def __init__(self, has_head=False, counts_are="draws"):
        super().__init__(len(SHARED))
        self.has_head, self.kind = has_head, counts_are

    @property
    def counts_are(self):
        return self.kind

    def draw(self, features, labels, head):
        counts = jnp.asarray(COUNTS, jnp.float32)
        true = jnp.where(labels >= 0, counts[labels], 1)
        shared = jnp.asarray(SHARED)
        tail = samplers.SampledValues(shared, true, counts[shared])
        if not self.has_head:
            return tail
        own = jnp.asarray(OWN)
        in_head = (labels[:, :, None] == own[:, None, :]).any(-1) & (labels >= 0)
        ones = jnp.ones(own.shape)
        return samplers.HeadAndTail(
            samplers.SampledValues(own, in_head.astype(jnp.float32), ones), tail
        )


def make_layer(sampler=None, **options):
    options = {"embeddings_initializer": TABLE, "bias_initializer": BIAS} | options
    layer = LargeOutput(N, sampler, **options)
    layer.build((None, DIM))
    return layer


def loss_and_gradients(layer, loss, labels, training=True, weights=None):
    """Returns the loss, and its gradients of features, class rows and biases."""
    others = [one.value for one in layer.non_trainable_variables]

    def compute(features, trainable):
        logits, _ = layer.stateless_call(trainable, others, features, training=training)
        return loss(labels, logits, weights)

    arguments = jnp.asarray(FEATURES), [one.value for one in layer.trainable_variables]
    return jax.jit(jax.value_and_grad(compute, argnums=(0, 1)))(*arguments)


def padded_counts():
    return np.where(LABELS >= 0, COUNTS[LABELS], 1)


def full_logits(features, table, bias):
    return features @ table.T + bias


def of_all_classes(features, table, bias, **options):
    targets = reference.dense_targets(LABELS, N, options.get("smoothing", 0), options.get("w"))
    logits = full_logits(np.float64(features), np.float64(table), bias)
    return reference.soft_cross_entropy(logits, targets, options.get("penalty", 0.0))


def drawn(function, *extra, with_true=True, **options):
    def compute(features, table, bias):
        counts = [padded_counts()] if with_true else []
        arguments = LABELS, SHARED, *counts, COUNTS[SHARED], *extra
        return function(features, table, bias, *arguments, **options)

    return compute


def with_head(function):
    def compute(features, table, bias):
        arguments = LABELS, OWN, SHARED, padded_counts(), COUNTS[SHARED]
        return reference.with_head(function, features, table, bias, *arguments)

    return compute


sampled_softmax = functools.partial(reference.sampled_softmax, correct_positive=False)
CASES = {
    "exact": (losses.SoftmaxLoss(), None, of_all_classes),
    "exact smoothed": (
        losses.SoftmaxLoss(
            label_smoothing=0.2, log_partition_penalty=0.1, class_weights=WEIGHTS
        ),
        None,
        functools.partial(of_all_classes, smoothing=0.2, penalty=0.1, w=WEIGHTS),
    ),
    "sampled": (
        losses.SampledSoftmaxLoss(),
        FixedSampler,
        drawn(reference.sampled_softmax, False),
    ),
    "corrected": (
        losses.SampledSoftmaxLoss(correct_positive=True),
        FixedSampler,
        drawn(reference.sampled_softmax, True),
    ),
    "head and tail": (
        losses.SampledSoftmaxLoss(),
        lambda: FixedSampler(True),
        with_head(sampled_softmax),
    ),
    "nce": (losses.NCELoss(), FixedSampler, drawn(reference.nce)),
    "decoupled": (
        losses.DecoupledSoftmaxLoss(),
        FixedSampler,
        drawn(reference.decoupled_softmax, 0.5, with_true=False),
    ),
    "decoupled by label": (
        losses.DecoupledSoftmaxLoss(label_power=0.0),
        FixedSampler,
        drawn(reference.decoupled_softmax, 0.0, with_true=False),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_follow_the_formulas(name):
    loss, make_sampler, formula = CASES[name]
    layer = make_layer(make_sampler and make_sampler())
    value, (of_features, of_weights) = loss_and_gradients(layer, loss, LABELS)
    counts = (LABELS >= 0).any(axis=1)

    def expected(features=FEATURES, table=TABLE, bias=BIAS):
        rows = formula(np.float64(features), np.float64(table), np.float64(bias))
        return reference.reduced(rows, counts, "sum_over_batch_size")

    np.testing.assert_allclose(value, expected(), rtol=2e-5)
    arrays = {"features": FEATURES, "table": TABLE, "bias": BIAS}
    found = {"features": of_features, "table": of_weights[0], "bias": of_weights[1]}
    for key, array in arrays.items():
        direction = rng.standard_normal(array.shape)
        step = 1e-5 * direction
        difference = expected(**{key: array + step}) - expected(**{key: array - step})
        slope = np.sum(np.float64(found[key]) * direction)
        np.testing.assert_allclose(slope, difference / 2e-5, rtol=2e-4, atol=2e-5)


def test_without_training_sampled_losses_are_exact():
    layer = make_layer(FixedSampler())
    expected, _ = loss_and_gradients(make_layer(), losses.SoftmaxLoss(), LABELS)
    for loss in (losses.SampledSoftmaxLoss(), losses.NCELoss(), losses.DecoupledSoftmaxLoss()):
        logits = layer(jnp.asarray(FEATURES), training=False)
        np.testing.assert_allclose(loss(LABELS, logits), expected, rtol=1e-5)


def test_smoothing_of_a_sampled_loss_estimates_the_mean_logit():
    loss = losses.SampledSoftmaxLoss(label_smoothing=0.3)
    everything = np.arange(N)

    class All(FixedSampler):
        def draw(self, features, labels, head):
            ones = jnp.ones(labels.shape), jnp.ones(N)
            return samplers.SampledValues(jnp.asarray(everything), *ones)

    found = loss_and_gradients(make_layer(All()), loss, LABELS)
    exact = losses.SoftmaxLoss(label_smoothing=0.3)
    expected = loss_and_gradients(make_layer(), exact, LABELS)
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=2e-6), found, expected)
    with pytest.raises(ValueError, match="expected counts are not known"):
        loss_and_gradients(make_layer(FixedSampler(counts_are="none")), loss, LABELS)


FORMS = {
    "normalize": {"normalize": True, "scale": 3.0},
    "learned": {"normalize": True, "scale": "learned"},
    "cap": {"logit_soft_cap": 1.5},
    "all": {"normalize": True, "scale": 5.0, "logit_soft_cap": 2.0, "use_bias": False},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sampled", [False, True])
def test_forms_of_logits(form, sampled):
    """The loss of the form equals that of full logits, whose gradients JAX computes."""
    layer = make_layer(FixedSampler() if sampled else None, **FORMS[form])
    own = losses.SampledSoftmaxLoss() if sampled else losses.SoftmaxLoss()
    labels = LABELS[[0, 1, 3, 3], :1].copy()
    value, gradients = loss_and_gradients(layer, own, labels)
    others = [one.value for one in layer.non_trainable_variables]

    def compute(features, trainable):
        logits, _ = layer.stateless_call(trainable, others, features, training=False)
        if not sampled:
            return jax.nn.logsumexp(logits, axis=1).mean() - true(logits).mean()
        log_counts = np.log(COUNTS[SHARED]).astype(np.float32)
        negatives = logits[:, jnp.asarray(SHARED)] - log_counts
        negatives = jnp.where(labels == np.array(SHARED), -jnp.inf, negatives)
        scores = jnp.concatenate([true(logits)[:, None], negatives], axis=1)
        return (jax.nn.logsumexp(scores, axis=1) - true(logits)).mean()

    def true(logits):
        return jnp.take_along_axis(logits, labels, axis=1)[:, 0]

    arguments = jnp.asarray(FEATURES), [one.value for one in layer.trainable_variables]
    expected = jax.value_and_grad(compute, argnums=(0, 1))(*arguments)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=2e-6)
    jax.tree.map(close, (value, gradients), expected)


@pytest.mark.parametrize("reduction", ["sum", "sum_over_batch_size", "mean_with_sample_weight"])
def test_weights_and_reductions(reduction):
    weights = np.array([1.0, 3.0, np.nan, 0.5], np.float32)  # the third has no label
    loss = losses.SoftmaxLoss(reduction=reduction)
    value, _ = loss_and_gradients(make_layer(), loss, LABELS, weights=weights)
    rows = of_all_classes(FEATURES, TABLE, BIAS)
    counts = (LABELS >= 0).any(axis=1)
    expected = reference.reduced(rows, counts, reduction, np.nan_to_num(weights))
    np.testing.assert_allclose(value, expected, rtol=1e-5)


def test_two_losses_of_an_output_share_the_draw():
    layer = make_layer(samplers.UniformSampler(4, seed=1))
    logits, loss = layer(FEATURES, training=True), losses.SampledSoftmaxLoss()
    assert loss(LABELS, logits) == loss(LABELS, logits)
    assert loss(LABELS, logits) != loss(LABELS, layer(FEATURES, training=True))


def test_sequences_and_ignored_labels():
    layer = make_layer(FixedSampler())
    features = FEATURES.reshape(2, 2, DIM)
    labels = np.array([[3, -100], [-1, 11]])
    loss = losses.SampledSoftmaxLoss(ignore_class=-100)
    value = loss(labels, layer(features, training=True))
    flat = np.where(labels == -100, -1, labels).reshape(-1, 1)
    formula = reference.sampled_softmax(
        FEATURES, TABLE, BIAS, flat, SHARED, COUNTS[flat], COUNTS[SHARED], False
    )
    np.testing.assert_allclose(value, formula.sum() / 2, rtol=1e-5)
    no_labels = loss(np.full((2, 2), -1), layer(features, training=True))
    assert no_labels == 0
    wide = losses.SampledSoftmaxLoss(ignore_class=2**40)
    assert wide(np.abs(labels) % N, layer(features, training=True)) > 0
    assert not loss(np.zeros(0, int), layer(FEATURES[:0], training=True)).size


def test_bad_input():
    layer, loss = make_layer(FixedSampler()), losses.SampledSoftmaxLoss()
    logits = layer(FEATURES, training=True)
    bad = {
        "out of range": (np.array([0, 1, 2, N]), "class ids in"),
        "too large": (np.array([0, 1, 2, 2**40]), "class ids in"),
        "negative": (np.array([0, 1, 2, -2]), "class ids in"),
        "floats": (np.array([0.0, 1, 2, 3]), "dtype float"),
        "shape": (np.array([0, 1, 2]), "shape"),
        "multi-hot": (np.eye(4, N, dtype=int), "multi-hot"),
    }
    for labels, message in bad.values():
        with pytest.raises(ValueError, match=message):
            loss(labels, logits)
    with pytest.raises(ValueError, match="direct output"):
        loss(np.zeros(4, int), logits * 2)
    with pytest.raises(ValueError, match="sampler=None"):
        loss(np.zeros(4, int), make_layer()(FEATURES, training=True))
    with pytest.raises(ValueError, match="one number per example"):
        loss(np.zeros(4, int), layer(FEATURES, training=True), np.ones(3))
    for make, message in [
        (lambda: losses.SampledSoftmaxLoss(label_smoothing=1.0), "label_smoothing"),
        (lambda: losses.SoftmaxLoss(compute_dtype="bfloat16"), "compute_dtype"),
        (lambda: losses.SampledSoftmaxLoss(from_logits=True), "from_logits"),
        (lambda: losses.DecoupledSoftmaxLoss(class_weights=[-1.0]), "class_weights"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()


def test_a_compiled_step_gives_nan_for_bad_ids():
    value, _ = loss_and_gradients(make_layer(), losses.SoftmaxLoss(), jnp.array([0, 1, 2, 3]))
    assert np.isfinite(value)
    layer, loss = make_layer(), losses.SoftmaxLoss()
    compiled = jax.jit(lambda labels: loss(labels, layer(FEATURES, training=False)))
    assert np.isnan(compiled(jnp.array([0, 1, 2, N])))
    assert np.isnan(compiled(jnp.array([0, 1, 2, -2])))


@pytest.mark.parametrize(
    "loss",
    [
        losses.SampledSoftmaxLoss(label_smoothing=0.1, class_weights=WEIGHTS, ignore_class=5),
        losses.DecoupledSoftmaxLoss(label_power=1.0, class_weights=WEIGHTS),
        losses.NCELoss(remove_accidental_hits=False, name="mine"),
        losses.SoftmaxLoss(log_partition_penalty=0.5, reduction="sum"),
    ],
    ids=lambda loss: loss.name,
)
def test_configs(loss):
    config = keras.saving.serialize_keras_object(loss)
    assert config["registered_name"] == f"tf_largeout>{type(loss).__name__}"
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == loss.get_config()
