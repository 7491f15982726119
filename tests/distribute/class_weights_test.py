"""Class weights, compared with Keras's `fit`, and their errors."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.distribute import trainer_process
from tf_largeout.distribute.fit import weighted
from tf_largeout.distribute.local_servers import local_servers

N, BATCH = 40, 16
X = np.random.default_rng(0).normal(size=(6 * BATCH, 4)).astype("float32")
Y = np.random.default_rng(1).integers(0, N, 6 * BATCH)
RAGGED = tf.RaggedTensor.from_row_lengths(Y, [1] * len(Y))
SOME = {3: 0.0, 17: 2.5, 1: 0.25, 38: -1}


def batches_with(class_weight, *arrays):
    data = tf.data.Dataset.from_tensor_slices(arrays).batch(BATCH)
    return weighted(lambda seed: data, class_weight)(0)


def trained(*data, **arguments):
    keras.utils.set_random_seed(2)
    head = tflo.layers.LargeOutput(N, tflo.samplers.UniformSampler(10, seed=1))
    model = keras.Sequential([keras.Input([4]), head])
    model.compile(
        tflo.optimizers.LazyAdam(0.1),
        tflo.losses.SampledSoftmaxLoss(),
        weighted_metrics=[tflo.metrics.PrecisionAtK(1)],
    )
    model.optimizer.build(model.trainable_variables)  # avoids a second trace
    history = model.fit(*data, shuffle=False, verbose=0, **arguments).history
    return history, model.get_weights()


@pytest.mark.slow
@pytest.mark.parametrize("class_weight", [SOME, {}])
def test_training_equals_fit(class_weight):
    history, weights = trained(batches_with(class_weight, X, Y))
    expected = trained(X, Y, batch_size=BATCH, class_weight=class_weight)
    assert history == expected[0]
    for one, other in zip(weights, expected[1], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "y",
    [
        Y[:, np.newaxis],
        Y.astype("uint8"),
        Y.astype("float64"),
        np.where(Y < 5, -1, Y),  # -1 means no label
        2**31 * (Y + 1),
    ],
    ids=["column", "uint8", "floats", "no label", "large"],
)
def test_all_forms_of_labels_are_weighted(y):
    class_weight = {**SOME, 2**31 * 4: 7.0}
    found = np.concatenate([each for _, _, each in batches_with(class_weight, X, y)])
    expected = [class_weight.get(int(one), 1.0) for one in y.ravel()]
    np.testing.assert_array_equal(found, np.array(expected, "float32"))


@pytest.mark.parametrize(
    "arrays, match",
    [
        ((X, np.stack([Y, Y], 1)), r"labels of the shape \(None, 2\)"),
        ((X, RAGGED), "needs a tensor of labels. Received: .*Ragged"),
        ((X, {"a": Y}), "needs a tensor of labels. Received: {'a'"),
        ((X,), "needs a tensor of labels. Received: None"),
        ((X, Y, np.ones(len(Y))), "cannot be combined with sample weights"),
    ],
    ids=["several labels", "ragged", "several outputs", "no labels", "sample weights"],
)
def test_batches_without_one_label_per_example_raise_an_error(arrays, match):
    with pytest.raises(ValueError, match=match) as error:
        batches_with(SOME, *arrays)
    assert "return `(x, y, sample_weight)` from `dataset_fn`" in str(error.value)


@pytest.mark.parametrize(
    "class_weight, match",
    [
        ([1.0, 2.0], r"must be a dictionary .* Received: class_weight=\[1.0, 2.0\]"),
        ({"a": 1.0}, "key of class_weight.* Received: .*'a'"),
        ({-1: 1.0}, "key of class_weight.* Received: .*-1"),
        ({3: "a"}, r"`class_weight\[3\]` must be a finite number"),
        ({3: float("nan")}, r"`class_weight\[3\]` must be a finite number"),
    ],
)
def test_invalid_class_weights_raise_an_error(class_weight, match):
    with pytest.raises(ValueError, match=match):
        batches_with(class_weight, X, Y)


@pytest.mark.slow
def test_one_trainer_on_servers_has_the_same_losses_as_fit():
    with local_servers(2) as servers:
        ended = trainer_process.run("weighing_trainer", *(one.address for one in servers))
    found = trainer_process.found(ended)
    for which in ("", " without labels"):
        losses, expected = found["losses" + which], found["expected" + which]
        np.testing.assert_allclose(losses, expected, rtol=1e-6)
    assert abs(found["unweighted"][0] / found["expected"][0] - 1) > 0.1
    assert "return `(x, y, sample_weight)` from `dataset_fn`" in found["several"]
