"""`SoftmaxLoss` with bfloat16 products."""

import keras
import numpy as np
import pytest

import tf_largeout as tflo

NUM_CLASSES, DIM = 500, 24
ROUNDED = {"compute_dtype": "bfloat16"}


def problem(seed=0, examples=320):
    rng = np.random.default_rng(seed)
    labels = rng.integers(NUM_CLASSES, size=examples)
    centers = rng.normal(size=(NUM_CLASSES, DIM))
    features = centers[labels] + 0.3 * rng.normal(size=(examples, DIM))
    return features.astype(np.float32), labels


def trained(seed=0, policy="float32", eager=False, epochs=10, **options):
    keras.utils.set_random_seed(seed)
    layers = [
        keras.layers.Dense(DIM, dtype=policy),
        tflo.layers.LargeOutput(NUM_CLASSES, dtype=policy),
    ]
    model = keras.Sequential([keras.Input([DIM]), *layers])
    model.compile(
        tflo.optimizers.LazyAdam(1e-2),
        tflo.losses.SoftmaxLoss(**options),
        metrics=[tflo.metrics.PrecisionAtK(1)],
        run_eagerly=eager,
    )
    model.optimizer.build(model.trainable_variables)  # Otherwise each step is traced twice.
    history = model.fit(*problem(), epochs=epochs, batch_size=64, shuffle=False, verbose=0)
    return model, history.history["loss"]


@pytest.fixture(scope="module")
def rounded():
    """Returns a model after two epochs, and its losses."""
    return trained(epochs=2, **ROUNDED)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_model_learns_as_with_exact_steps(policy):
    _, exact = trained(policy=policy)
    _, rounded = trained(policy=policy, **ROUNDED)
    assert exact[-1] < 0.5 * exact[0]
    np.testing.assert_allclose(rounded, exact, rtol=0.02)


def test_eager_and_compiled_steps_agree(rounded):
    _, compiled = rounded
    _, eager = trained(epochs=2, eager=True, **ROUNDED)
    np.testing.assert_allclose(eager, compiled, rtol=1e-4)


def test_evaluation_is_exact(rounded):
    model, _ = rounded
    features, labels = problem()
    loss, precision = model.evaluate(features, labels, verbose=0)
    logits = np.float64(model.predict(features, verbose=0))
    log_partition = np.log(np.exp(logits).sum(1))
    np.testing.assert_allclose(
        loss, np.mean(log_partition - logits[np.arange(len(labels)), labels]), rtol=1e-5
    )
    np.testing.assert_allclose(precision, np.mean(logits.argmax(1) == labels), rtol=1e-5)


def test_the_loss_can_be_saved_and_loaded(rounded, tmp_path):
    model, _ = rounded
    model.save(tmp_path / "model.keras")
    loss = keras.saving.load_model(tmp_path / "model.keras").loss
    assert loss.compute_dtype == "bfloat16"


@pytest.mark.parametrize("compute_dtype", ["float16", None, 16])
def test_other_dtypes_raise_an_error(compute_dtype):
    with pytest.raises(ValueError, match="`compute_dtype` must be one of .*bfloat16"):
        tflo.losses.SoftmaxLoss(compute_dtype=compute_dtype)


def test_a_layer_without_a_bfloat16_pass_raises_an_error():
    keras.utils.set_random_seed(0)
    layer = tflo.layers.HierarchicalOutput(40)
    logits = layer(np.ones([3, 8], np.float32), training=True)
    with pytest.raises(ValueError, match="Leave it out of the loss"):
        tflo.losses.SoftmaxLoss(compute_dtype="bfloat16")(np.array([1, 2, 3]), logits)
