"""Examples without labels do not count in means, as with Keras's `ignore_class`."""

import keras
import numpy as np
import pytest

from tests.replicas import two_replicas
from tests.slow import slow_but
from tf_largeout import layers, losses, metrics, optimizers, samplers

N, DIM, TIME, BATCH = 19, 4, 5, 4
RNG = np.random.default_rng(2)
X = RNG.integers(0, 9, (4 * BATCH, TIME))  # 0 is padding, which Keras masks
Y = np.where(RNG.random(X.shape) < 0.4, -1, RNG.integers(0, N, X.shape))
Y[BATCH : 2 * BATCH] = -1  # A whole batch.
WEIGHT = RNG.random(X.shape)


def keras_loss(reduction):
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=-1, reduction=reduction
    )


def new_model(head, loss, masked, **options):
    keras.utils.set_random_seed(5)
    embedding = keras.layers.Embedding(9, DIM, mask_zero=masked)
    model = keras.Sequential([keras.Input([TIME], dtype="int32"), embedding, head])
    model.compile(keras.optimizers.SGD(0.5), loss, **options)
    return model


def pair(reduction="sum_over_batch_size", masked=True, **options):
    """Returns a model with `LargeOutput`, and the same model with Keras's layers and losses."""
    ours = new_model(
        layers.LargeOutput(N), losses.SoftmaxLoss(reduction=reduction), masked, **options
    )
    dense = new_model(keras.layers.Dense(N), keras_loss(reduction), masked, **options)
    embeddings, bias = ours.layers[-1].get_weights()
    dense.layers[-1].set_weights([embeddings.T, bias])
    return ours, dense


def assert_equal_weights(ours, dense):
    np.testing.assert_allclose(
        ours.layers[0].get_weights(), dense.layers[0].get_weights(), rtol=1e-4, atol=1e-6
    )
    kernel, bias = dense.layers[-1].get_weights()
    for found, expected in zip(ours.layers[-1].get_weights(), [kernel.T, bias], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "reduction, masked, weighted",
    slow_but(
        [("mean_with_sample_weight", True, True)],
        [
            (reduction, masked, weighted)
            for reduction in ("sum_over_batch_size", "mean_with_sample_weight", "sum")
            for masked in (False, True)
            for weighted in (False, True)
        ],
    ),
)
def test_fit_and_evaluate_equal_those_of_keras(reduction, masked, weighted):
    models = pair(reduction, masked, run_eagerly=True)
    options = {"batch_size": BATCH, "sample_weight": WEIGHT if weighted else None, "verbose": 0}
    before = [model.evaluate(X, Y, **options) for model in models]
    np.testing.assert_allclose(*before, rtol=1e-5)
    fitted = [model.fit(X, Y, shuffle=False, **options).history["loss"] for model in models]
    np.testing.assert_allclose(*fitted, rtol=1e-5)
    assert_equal_weights(*models)


@pytest.mark.slow
def test_two_replicas_equal_those_of_keras():
    with two_replicas().scope():
        models = pair()
    options = {"batch_size": BATCH, "verbose": 0}
    fitted = [model.fit(X, Y, shuffle=False, **options).history["loss"] for model in models]
    np.testing.assert_allclose(*fitted, rtol=1e-5)
    np.testing.assert_allclose(*(model.evaluate(X, Y, **options) for model in models), 1e-5)
    assert_equal_weights(*models)


OTHER_HEADS = {
    "spherical": (lambda: layers.FactoredOutput(N, 0.1), losses.TaylorSoftmaxLoss),
    "hierarchical": (lambda: layers.HierarchicalOutput(N), losses.HierarchicalSoftmaxLoss),
    "exact": (lambda: layers.LargeOutput(N), losses.SoftmaxLoss),
}


@pytest.mark.parametrize("name", OTHER_HEADS)
def test_padding_changes_neither_loss_nor_step(name):
    """Examples without labels have no effect."""
    make, loss = OTHER_HEADS[name]
    is_labelled = Y.reshape(-1) >= 0
    found = []
    for chosen in (slice(None), is_labelled):
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input([DIM]), keras.layers.Dense(DIM), make()])
        model.compile(keras.optimizers.SGD(0.5), loss(), run_eagerly=True)
        x = np.random.default_rng(3).normal(size=[Y.size, DIM])[chosen]
        y = Y.reshape(-1)[chosen]
        found.append([[model.train_on_batch(x, y)], *model.get_weights()])
    for with_padding, without in zip(*found, strict=True):
        np.testing.assert_allclose(with_padding, without, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_loss_of_one_label_per_sequence_is_the_log_of_the_perplexity():
    """If batches have equally many labels, Keras's mean over batches is that over examples."""
    head = layers.LargeOutput(N, samplers.UniformSampler(5, seed=1))
    model = new_model(
        head,
        losses.SampledSoftmaxLoss(),
        masked=False,
        metrics=[metrics.Perplexity()],
        run_eagerly=True,
    )
    y = np.pad(np.arange(2 * BATCH)[:, np.newaxis], [(0, 0), (TIME - 1, 0)], constant_values=-1)
    loss, perplexity = model.evaluate(X[: 2 * BATCH], y, batch_size=BATCH, verbose=0)
    logits = np.float64(model.predict(X[: 2 * BATCH], verbose=0)[:, -1])
    expected = np.mean(np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y[:, -1]])
    assert loss == pytest.approx(expected, rel=1e-5)
    assert np.log(perplexity) == pytest.approx(expected, rel=1e-5)


def test_a_batch_without_labels_has_loss_0_and_changes_no_row():
    head = layers.LargeOutput(N, samplers.UniformSampler(5, seed=1))
    model = keras.Sequential([keras.Input([DIM]), head])
    model.compile(optimizers.LazyAdam(0.1), losses.SampledSoftmaxLoss(), run_eagerly=True)
    x = RNG.normal(size=(BATCH, DIM))
    model.train_on_batch(x, np.arange(BATCH))
    before = head.embeddings.numpy(), head.bias.numpy()
    assert model.train_on_batch(x, np.full(BATCH, -1)) == 0
    for was, variable in zip(before, (head.embeddings, head.bias), strict=True):
        np.testing.assert_array_equal(variable, was)
