"""Errors of losses for invalid input."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tf_largeout import layers, losses, samplers

FEATURES = np.ones((4, 3), "float32")
LABELS = np.array([0, 1, 2, 3])


def _logits(features=FEATURES, sampler=None, training=True):
    head = harness.built_head(np.ones((10, 3), "float32"), sampler=sampler)
    return head(features, training=training)


def test_logits_of_another_layer_raise_an_error():
    logits = keras.layers.Dense(10)(FEATURES)
    with pytest.raises(ValueError, match="direct output of a `LargeOutput`.*no softmax"):
        losses.SampledSoftmaxLoss()(LABELS, logits)


@pytest.mark.parametrize(
    "loss, layer",
    [
        (losses.SampledSoftmaxLoss(), "LargeOutput"),
        (losses.ZLoss(), "FactoredOutput"),
        (losses.HierarchicalSoftmaxLoss(), "HierarchicalOutput"),
    ],
)
def test_the_error_names_the_layers_that_support_the_loss(loss, layer):
    with pytest.raises(ValueError, match=f"direct output of a `{layer}` layer.*the last layer"):
        loss(LABELS, keras.layers.Dense(10)(FEATURES))
    other = layers.LargeOutput if layer != "LargeOutput" else layers.HierarchicalOutput
    with pytest.raises(ValueError, match=f"{other.__name__} '.* works with a `{layer}`. Use"):
        loss(LABELS, other(10)(FEATURES, training=True))


def test_an_output_layer_inside_of_time_distributed_raises_an_error():
    inside = keras.layers.TimeDistributed(layers.LargeOutput(10))
    with pytest.raises(ValueError, match="Do not put it in a TimeDistributed"):
        losses.SoftmaxLoss()(LABELS[:, None], inside(FEATURES[:, None]))


def test_a_layer_after_the_output_raises_an_error():
    with pytest.raises(ValueError, match="SoftmaxLoss needs the direct output"):
        losses.SoftmaxLoss()(LABELS, tf.nn.softmax(_logits()))


@pytest.mark.parametrize(
    "loss",
    [
        losses.SampledSoftmaxLoss(),
        losses.NCELoss(),
        losses.NegativeSamplingLoss(),
        losses.ImportanceNormalizationLoss(complement="batch"),
    ],
)
def test_a_sampled_loss_without_a_sampler_raises_an_error(loss):
    with pytest.raises(ValueError, match="sampler=None.*UniformSampler.*SoftmaxLoss"):
        loss(LABELS, _logits())


def test_labels_of_float_type_raise_an_error():
    with pytest.raises(ValueError, match="integer class ids.*dtype float32"):
        losses.SoftmaxLoss()(LABELS.astype("float32"), _logits())


@pytest.mark.parametrize("labels", [LABELS[:3], LABELS[:, None, None], LABELS[0]])
def test_labels_that_do_not_fit_the_features_raise_an_error(labels):
    with pytest.raises(ValueError, match="labels must have the shape"):
        losses.SoftmaxLoss()(labels, _logits())


@pytest.mark.parametrize("bad", [10, -2, 2**40])
@pytest.mark.parametrize("training", [True, False])
def test_a_label_out_of_range_raises_an_error(bad, training):
    labels = np.array([0, 1, 2, bad])
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"(?s)\[0, 10\).*{bad}"):
        losses.SoftmaxLoss()(labels, _logits(training=training))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_features_that_are_not_finite_raise_an_error(bad):
    features = FEATURES.copy()
    features[1, 2] = bad
    logits = _logits(features, samplers.UniformSampler(5))
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be finite"):
        losses.SampledSoftmaxLoss()(LABELS, logits)


def test_an_unknown_reduction_of_negatives_raises_an_error():
    with pytest.raises(ValueError, match=r"one of \['sum', 'mean'\]. Received.*'max'"):
        losses.NegativeSamplingLoss(negative_reduction="max")


@pytest.mark.parametrize("bad", [-0.5, 1.5, "1", None])
def test_an_invalid_power_of_the_number_of_labels_raises_an_error(bad):
    with pytest.raises(ValueError, match="`label_power` must be a number.*Received: label_p"):
        losses.DecoupledSoftmaxLoss(label_power=bad)


def test_labels_above_two_to_the_24th_stay_exact():
    lazy = _logits()._largeout_tag
    lazy.head.class_matrix.num_classes = 2**40
    labels = np.array([2**24 + 1, 2**33 + 1, 0, -1])
    np.testing.assert_array_equal(lazy.labels(labels).ids[:, 0], labels)


@pytest.mark.parametrize("calibration", [-0.1, 1.5, float("nan"), "no"])
def test_a_calibration_outside_zero_to_one_is_an_error(calibration):
    with pytest.raises(ValueError, match="calibration"):
        losses.NegativeSamplingLoss(calibration=calibration)
