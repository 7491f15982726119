"""The factors and statistics of a `FactoredOutput` stay accurate in a long training run."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_largeout import layers, losses, optimizers

NUM_CLASSES, DIM, BATCH, STEPS = 5000, 32, 32, 100_000


def _examples(num_examples=200_000):
    random = np.random.default_rng(0)
    directions = random.standard_normal((NUM_CLASSES, DIM))
    labels = random.integers(NUM_CLASSES, size=num_examples)
    noise = random.standard_normal((num_examples, DIM))
    features = (directions[labels] + 0.3 * noise).astype("float32")
    examples = tf.data.Dataset.from_tensor_slices((features, labels))
    return examples.shuffle(num_examples, seed=0).repeat().batch(BATCH)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "rate"),
    [
        (losses.ZLoss, 3.0),
        (losses.TaylorSoftmaxLoss, 32.0),
        (losses.SphericalSoftmaxLoss, 32.0),
        (losses.SquaredErrorLoss, 0.1),
    ],
)
def test_the_factors_stay_accurate_for_a_hundred_thousand_steps(loss, rate):
    keras.utils.set_random_seed(0)
    head = layers.FactoredOutput(NUM_CLASSES, rate)
    normalization = [keras.layers.UnitNormalization()] * (loss is losses.SquaredErrorLoss)
    model = keras.Sequential(
        [keras.Input([DIM]), keras.layers.Dense(DIM), *normalization, head]
    )
    model.compile(optimizers.LazyAdam(1e-3), loss(), steps_per_execution=500)
    quarter = STEPS // 4
    fitted = model.fit(_examples(), steps_per_epoch=quarter, epochs=4, verbose=0, shuffle=False)
    assert fitted.history["loss"][-1] < fitted.history["loss"][0]
    drift = head.drift()
    print(loss.__name__, rate, fitted.history["loss"], drift)
    assert drift["gram"] < 1e-5 and drift["total"] < 1e-5 and drift["inverse"] < 1e-6
    singular_values = np.linalg.svd(head._mixing, compute_uv=False)
    print(singular_values.min(), singular_values.max())
    assert 1e-3 < singular_values.min() and singular_values.max() < 1e3
