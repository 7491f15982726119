"""A step as a value: what `step` of an output layer makes, and the functions of it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import harness
from tests.slow import slow_but

N, DIM, BATCH = 40, 6, 5
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(N, DIM)).astype("float32")
BIAS = RNG.normal(size=N).astype("float32")
FEATURES = RNG.normal(size=(BATCH, DIM)).astype("float32")
LABELS = np.array([[3, 7], [9, -1], [0, 3], [-1, -1], [39, 2]])
SAMPLER = tflo.samplers.UniformSampler
FUNCTIONS = {
    "softmax": tflo.losses.SoftmaxLoss,
    "sampled_softmax": tflo.losses.SampledSoftmaxLoss,
    "decoupled_softmax": tflo.losses.DecoupledSoftmaxLoss,
    "nce": tflo.losses.NCELoss,
    "negative_sampling": tflo.losses.NegativeSamplingLoss,
    "sigmoid": tflo.losses.SigmoidLoss,
}


def head_of(seed=3):
    return harness.built_head(ROWS, BIAS, SAMPLER(8, seed=seed))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_function_of_a_step_equals_the_keras_loss(name, training):
    step = head_of().step(FEATURES, LABELS, training=training)
    found = getattr(tflo.losses, name)(step)
    loss = FUNCTIONS[name](reduction=None)
    expected = loss(LABELS, head_of()(FEATURES, training=training))
    np.testing.assert_array_equal(found, expected)
    assert found[3] == 0  # no label


def test_the_options_of_a_function_are_those_of_the_loss():
    step = head_of().step(FEATURES, LABELS, training=True)
    found = tflo.losses.sampled_softmax(step, label_smoothing=0.3)
    loss = tflo.losses.SampledSoftmaxLoss(label_smoothing=0.3, reduction=None)
    np.testing.assert_array_equal(found, loss(LABELS, head_of()(FEATURES, training=True)))
    with pytest.raises(ValueError, match="`label_smoothing` must be"):
        tflo.losses.sampled_softmax(step, label_smoothing=2)


def test_a_step_of_a_cosine_head_has_the_function_with_margins():
    heads = [harness.built_head(ROWS, None, SAMPLER(8, seed=3), normalize=True) for _ in "12"]
    found = tflo.losses.margin_softmax(heads[0].step(FEATURES, LABELS, training=True))
    loss = tflo.losses.MarginSoftmaxLoss(reduction=None)
    np.testing.assert_array_equal(found, loss(LABELS, heads[1](FEATURES, training=True)))


def test_a_sequence_is_one_example_per_position():
    features = RNG.normal(size=(2, 3, DIM)).astype("float32")
    labels = np.array([[1, -1, 4], [5, 39, -1]])
    step = head_of().step(features, labels)
    losses = tflo.losses.softmax(step).numpy()
    dense = tf.nn.sparse_softmax_cross_entropy_with_logits(
        np.maximum(labels, 0).ravel(), step.features @ ROWS.T + BIAS
    )
    np.testing.assert_allclose(losses, np.where(labels.ravel() < 0, 0, dense), rtol=1e-5)


@tf.function
def step_of(head, optimizer, features):
    with tf.GradientTape() as tape:
        step = head.step(features, LABELS, training=True)
        loss = tf.reduce_sum(tflo.losses.sampled_softmax(step))
    variables = head.trainable_variables
    optimizer.apply(tape.gradient(loss, variables), variables)
    return loss


def test_a_loop_of_steps_trains_as_fit_does():
    head, optimizer = head_of(), tflo.optimizers.LazyAdam(0.1)
    optimizer.build(head.trainable_variables)
    losses = [float(step_of(head, optimizer, tf.constant(FEATURES))) for _ in range(3)]
    model = keras.Sequential([keras.Input([DIM]), fitted := head_of()])
    loss = tflo.losses.SampledSoftmaxLoss(reduction="sum")
    model.compile(tflo.optimizers.LazyAdam(0.1), loss)
    history = model.fit(FEATURES, LABELS, BATCH, epochs=3, shuffle=False, verbose=0).history
    np.testing.assert_allclose(losses, history["loss"], rtol=1e-6)
    np.testing.assert_allclose(fitted.embeddings, head.embeddings, rtol=1e-6)


def test_a_step_of_an_unbuilt_layer_says_what_to_do():
    with pytest.raises(ValueError, match="`step` needs the weights.*First call the model"):
        tflo.layers.LargeOutput(N, "uniform").step(FEATURES, LABELS)


def functional(exclude_width):
    features, exclude = keras.Input([DIM]), keras.Input([exclude_width], dtype="int64")
    head = tflo.layers.LargeOutput(
        N,
        SAMPLER(8),
        embeddings_initializer=ROWS,
        bias_initializer=BIAS,
    )
    return keras.Model([features, exclude], head(features, exclude=exclude))


EXCLUDED = np.array([[7, 7, 1], [-1, -1, -1], [5, 6, 8], [1, 2, 3], [39, 11, 12]])


@pytest.mark.parametrize("eager", slow_but([False], [False, True]))
def test_metrics_do_not_rank_the_excluded_classes_of_a_functional_model(eager):
    model = functional(3)
    metrics = [tflo.metrics.NDCG(), tflo.metrics.CatalogCoverageAtK(3, N)]
    loss = tflo.losses.SampledSoftmaxLoss()
    model.compile(tflo.optimizers.LazyAdam(0.0), loss, metrics=metrics, run_eagerly=eager)
    found = model.evaluate([FEATURES, EXCLUDED], LABELS, verbose=0)
    plain = keras.Sequential([keras.Input([DIM]), model.layers[-1]])
    plain.compile(
        loss=loss, metrics=[tflo.metrics.NDCG(), tflo.metrics.CatalogCoverageAtK(3, N)]
    )
    expected = plain.evaluate(FEATURES, tflo.metrics.with_exclude(LABELS, EXCLUDED), verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    without = plain.evaluate(FEATURES, LABELS, verbose=0)
    assert found[0] == pytest.approx(without[0]) and found[1] != pytest.approx(without[1])
    model.fit([FEATURES, EXCLUDED], LABELS, verbose=0)  # no effect in training
    logits = model.predict([FEATURES, EXCLUDED], verbose=0)
    np.testing.assert_allclose(logits, FEATURES @ ROWS.T + BIAS, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        (np.zeros((BATCH, 1)), "must be integer class ids"),
        (np.zeros(BATCH, int), "must have a row of class ids for each example"),
        (np.zeros((BATCH - 1, 2), int), "must have a row of class ids for each example"),
        (np.full((BATCH, 2), N), r"must be class ids in \[0, 40\)"),
    ],
)
def test_wrong_ids_to_exclude_raise_an_error(exclude, message):
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=message):
        head_of()(FEATURES, exclude=exclude)
