"""`MarginSoftmaxLoss` against its formula, from angles, and against finite differences."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import harness, replicas
from tests.losses.table import BATCH, DIM, SEVERAL, N
from tests.reference import margin_softmax as reference
from tests.slow import slow_but
from tf_largeout import losses, samplers
from tf_largeout.losses.softmax_losses import cosine_with_margins

MARGINS = {"arc": (0.5, 0.0), "cosine": (0.0, 0.35), "both": (1.2, 0.2), "none": (0.0, 0.0)}
EACH_MARGIN = pytest.mark.parametrize("margins", MARGINS.values(), ids=MARGINS)
RNG = np.random.default_rng(8)
ROWS = RNG.normal(size=(N, DIM)).astype("float32")
FEATURES = RNG.normal(size=(BATCH, DIM)).astype("float32")
FEATURES[0] = 3 * ROWS[3]  # angle 0
FEATURES[2] = -2 * ROWS[36]  # angle pi, where the continuation starts
SCALE = 6.0


def head(sampler=None, num_shards=1, **kwargs):
    arguments = {"use_bias": False, "normalize": True, "scale": SCALE, **kwargs}
    layer = tflo.layers.LargeOutput(
        N, sampler, embeddings_initializer=ROWS, num_shards=num_shards, **arguments
    )
    layer.build((None, DIM))
    return layer


def loss_and_gradients(layer, loss, features=FEATURES, labels=SEVERAL):
    features = tf.convert_to_tensor(features)
    with tf.GradientTape() as tape:
        tape.watch(features)
        value = loss(labels, layer(features, training=True))
    variables = [one.value for one in layer.trainable_variables]
    return value.numpy(), tape.gradient(value, [features, *variables])


@EACH_MARGIN
def test_the_margin_is_that_of_the_angle_and_falls_with_it(margins):
    cosines = np.cos(np.linspace(0, np.pi, 401))
    found = cosine_with_margins(tf.constant(cosines, tf.float32), *margins)
    expected = [reference.with_margins(cosine, *margins) for cosine in cosines]
    np.testing.assert_allclose(found, expected, atol=1e-3)  # at angles below 0.001
    # Rounding a cosine of float32 changes its angle by up to 6e-8 / sin(angle).
    np.testing.assert_allclose(found[1:-1], expected[1:-1], atol=1e-5)
    assert np.all(np.diff(found) < 0)


@EACH_MARGIN
def test_its_gradient_is_finite_where_rounding_leaves_the_cosines(margins):
    cosines = tf.constant([1.0, 1.0000001, 1.004, -1.0, -1.0000001, -1.004, 0.0])
    with tf.GradientTape() as tape:
        tape.watch(cosines)
        value = cosine_with_margins(cosines, *margins)
    gradient = tape.gradient(value, cosines).numpy()
    assert np.all(np.isfinite(value)) and np.all((gradient > 0) & (gradient < 1001))


@EACH_MARGIN
@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("sampler", [None, "all"])
def test_over_all_classes_it_is_the_formula(margins, num_shards, sampler):
    layer = head(sampler and samplers.UniformSampler(N), num_shards)
    options = {"label_smoothing": 0.2, "class_weights": RNG.uniform(0.5, 2, N)}
    labels = np.concatenate([SEVERAL, SEVERAL[:, :1]], axis=1)  # with repeats
    for kwargs in ({}, options):
        loss = losses.MarginSoftmaxLoss(*margins, reduction=None, **kwargs)
        found = loss(labels, layer(FEATURES, training=True))
        expected = reference.losses(FEATURES, ROWS, labels, margins, SCALE, **kwargs)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=SCALE * 1e-3)
        np.testing.assert_allclose(found[3:], expected[3:], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_shards", [1, 3])
@pytest.mark.parametrize("sampler", [None, "all"])
@pytest.mark.parametrize("margins", [MARGINS["both"]], ids=["both"])
def test_its_gradients_are_those_of_finite_differences(margins, num_shards, sampler):
    features = RNG.normal(size=(BATCH, DIM)).astype("float32")
    layer = head(sampler and samplers.UniformSampler(N), num_shards)
    loss = losses.MarginSoftmaxLoss(*margins, reduction="sum")
    _, (of_features, *of_rows) = loss_and_gradients(layer, loss, features)
    assert all(isinstance(one, tf.IndexedSlices) == (sampler == "all") for one in of_rows)
    values = [features.astype("float64"), ROWS.astype("float64")]
    found = [of_features, np.concatenate([tf.convert_to_tensor(one) for one in of_rows])]
    for place, gradient in enumerate(found):
        for index in [(0, 1), (2, 0), (5, 3), (1, 4)]:
            ends = []
            for step in (1e-5, -1e-5):
                moved = [one.copy() for one in values]
                moved[place][index] += step
                ends.append(reference.losses(*moved, SEVERAL, margins, SCALE).sum())
            expected = (ends[0] - ends[1]) / 2e-5
            np.testing.assert_allclose(gradient[index], expected, rtol=1e-3, atol=2e-4)


def test_the_sampled_loss_corrects_only_the_negatives():
    counts = {3: 0.5, 9: 1.5, 20: 0.25, 30: 2.0}
    values = harness.sampled_values(list(counts), np.ones(SEVERAL.shape), list(counts.values()))
    layer = head(harness.FixedSampler(values))
    options = {"label_smoothing": 0.1}
    loss = losses.MarginSoftmaxLoss(0.5, 0.1, reduction=None, **options)
    found = loss(SEVERAL, layer(FEATURES, training=True))
    expected = reference.losses(FEATURES, ROWS, SEVERAL, (0.5, 0.1), SCALE, counts, **options)
    np.testing.assert_allclose(found[3:], expected[3:], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=SCALE * 1e-3)


@pytest.mark.parametrize("sampler", [None, "uniform"])
def test_gradients_are_finite_at_angles_of_0_and_pi(sampler):
    layer = head(sampler, scale="learned")
    features = np.concatenate([FEATURES, np.zeros((1, DIM), "float32")])
    labels = np.concatenate([SEVERAL, [[4, -1, -1]]])
    value, gradients = loss_and_gradients(
        layer, losses.MarginSoftmaxLoss(0.5, 0.1), features, labels
    )
    for one in (value, *gradients):
        assert np.all(np.isfinite(tf.convert_to_tensor(one)))


@pytest.mark.parametrize("num_shards", [1, 3])
def test_an_example_may_have_all_classes_as_labels(num_shards):
    labels = np.tile(np.arange(N), (BATCH, 1))
    loss = losses.MarginSoftmaxLoss(reduction="sum")
    value, gradients = loss_and_gradients(head(None, num_shards), loss, labels=labels)
    expected = reference.losses(FEATURES, ROWS, labels, (0.5, 0), SCALE).sum()
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    assert all(np.all(np.isfinite(one)) for one in gradients)


def test_an_exact_pass_keeps_a_loss_that_a_subtraction_would_lose():
    features = ROWS[:BATCH]
    labels = np.arange(BATCH)[:, None]
    loss = losses.MarginSoftmaxLoss(1.5, 0.0, reduction=None)
    found = loss(labels, head(scale=64.0)(features, training=True))
    expected = reference.losses(features, ROWS, labels, (1.5, 0.0), 64.0)
    np.testing.assert_allclose(found, expected, rtol=5e-3)


@pytest.mark.slow  # losses_test.py has its formula and its config
@pytest.mark.parametrize(
    ("sampler", "policy"),
    slow_but(
        [("uniform", "mixed_bfloat16")],
        itertools.product([None, "uniform"], ["float32", "mixed_bfloat16", "mixed_float16"]),
    ),
)
def test_a_model_learns_evaluates_without_margins_and_is_saved(sampler, policy, tmp_path):
    keras.utils.set_random_seed(1)
    layer = tflo.layers.LargeOutput(
        N, sampler, use_bias=False, normalize=True, scale=16.0, dtype=policy
    )
    model = keras.Sequential([keras.Input([N]), keras.layers.Dense(DIM), layer])
    loss = losses.MarginSoftmaxLoss(0.3, 0.05, ignore_class=7, label_smoothing=0.01)
    model.compile(tflo.optimizers.LazyAdam(0.05), loss, metrics=["precision_at_1"])
    x, y = np.eye(N, dtype="float32"), np.arange(N)
    history = model.fit(x, y, batch_size=13, epochs=30, verbose=0).history
    assert history["loss"][-1] < history["loss"][0] / 2
    found = model.evaluate(x, y, verbose=0, return_dict=True)
    assert found["precision_at_1"] > 0.9
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.loss.get_config() == loss.get_config()
    assert loaded.evaluate(x, y, verbose=0, return_dict=True) == pytest.approx(found)
    loaded.compile(loss=losses.SoftmaxLoss(label_smoothing=0.01, ignore_class=7))
    plain = loaded.evaluate(x, y, verbose=0, return_dict=True)
    np.testing.assert_allclose(found["loss"], plain["loss"], rtol=1e-5)


@pytest.mark.slow  # integration/replicas_test.py has one short case
def test_replicas_train_as_one():
    def trained(strategy):
        with strategy.scope():
            layer = head(samplers.UniformSampler(N), scale="learned")
            model = keras.Sequential([keras.Input([DIM]), layer])
            model.compile(tflo.optimizers.LazySGD(0.1), losses.MarginSoftmaxLoss(0.5, 0.1))
        model.fit(FEATURES[1:], np.arange(5) % 2, batch_size=4, shuffle=False, verbose=0)
        return model.get_weights()

    data = trained(tf.distribute.get_strategy()), trained(replicas.two_replicas())
    for one, other in zip(*data, strict=True):
        if one.dtype == np.float32:
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_weights_of_examples_multiply_their_losses():
    logits = head("uniform")(FEATURES, training=False)
    loss = losses.MarginSoftmaxLoss(reduction="sum")
    each = losses.MarginSoftmaxLoss(reduction=None)(SEVERAL, logits)
    weights = np.arange(BATCH, dtype="float32")
    found = loss(SEVERAL, logits, sample_weight=weights)
    np.testing.assert_allclose(found, np.sum(weights * each), rtol=1e-5)


@pytest.mark.parametrize(
    "arguments",
    [
        {"angular_margin": -0.1},
        {"angular_margin": 1.6},
        {"angular_margin": np.nan},
        {"angular_margin": "0.5"},
        {"cosine_margin": -0.1},
        {"cosine_margin": 1.1},
        {"cosine_margin": np.inf},
        {"cosine_margin": True},
    ],
)
def test_margins_out_of_range_are_errors(arguments):
    (name,) = arguments
    with pytest.raises(ValueError, match=f"`{name}` must be .*Received: {name}="):
        losses.MarginSoftmaxLoss(**arguments)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"normalize": False}, "with normalize=False"),
        ({"use_bias": True}, "with use_bias=True"),
        ({"logit_soft_cap": 30.0}, "with logit_soft_cap=30.0"),
    ],
)
def test_other_logits_are_errors(arguments, message, training):
    logits = head("uniform", **arguments)(FEATURES, training=training)
    with pytest.raises(ValueError, match=f"normalize=True, use_bias=False.*{message}"):
        losses.MarginSoftmaxLoss()(SEVERAL, logits)
