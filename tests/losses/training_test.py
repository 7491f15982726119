"""The loss in training, in evaluation, and in a loop that does not pass `training`."""

import itertools
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import harness
from tests.slow import slow_but
from tf_largeout import layers, losses, samplers

FEATURES = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
LABELS = np.array([0, 1, 2, 3])
SAMPLED = [losses.SampledSoftmaxLoss, losses.NCELoss, losses.NegativeSamplingLoss]


def make_head():
    embeddings = np.random.default_rng(1).normal(size=(10, 3)).astype("float32")
    return harness.built_head(embeddings, sampler=samplers.UniformSampler(5, seed=1))


@pytest.mark.parametrize(
    "loss, in_graph",
    slow_but([(SAMPLED[0], False)], itertools.product(SAMPLED, [False, True])),
)
def test_a_loop_that_does_not_pass_training_causes_one_warning(loss, in_graph):
    head = make_head()
    model = keras.Sequential([keras.Input((3,)), head])

    def step():
        return loss()(LABELS, model(FEATURES))

    step = tf.function(step) if in_graph else step
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        values = [step() for _ in range(3)]
    # TensorFlow 2.20 causes DeprecationWarnings on Python 3.13.
    (message,) = [str(one.message) for one in caught if one.category is UserWarning]
    assert f"{loss.__name__} was given logits" in message
    assert "training=True" in message
    exact = losses.SoftmaxLoss()(LABELS, head(FEATURES, training=False))
    np.testing.assert_allclose(values, [exact] * 3, rtol=1e-6)


@pytest.mark.parametrize("loss", SAMPLED)
@pytest.mark.parametrize("training", [True, False])
def test_a_loop_that_passes_training_causes_no_warning(loss, training):
    model = keras.Sequential([keras.Input((3,)), make_head()])
    with warnings.catch_warnings(record=True) as caught:
        loss()(LABELS, model(FEATURES, training=training))
    assert caught == []


def test_the_exact_loss_causes_no_warning():
    with warnings.catch_warnings(record=True) as caught:
        losses.SoftmaxLoss()(LABELS, make_head()(FEATURES))
    assert caught == []


@keras.saving.register_keras_serializable(package="tests")
class WithoutTraining(keras.Model):
    """A model whose `call` does not take `training`."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)
        self.head = layers.LargeOutput(10, sampler=samplers.UniformSampler(5, seed=1))

    def call(self, x):
        return self.head(self.dense(x))


@pytest.mark.slow
@pytest.mark.parametrize("eager", slow_but([False], [False, True]))
def test_fit_and_evaluate_of_a_model_without_training_argument_cause_no_warning(eager):
    model = WithoutTraining()
    model.compile("sgd", losses.NCELoss(), run_eagerly=eager)
    model.fit(FEATURES, LABELS, validation_data=(FEATURES, LABELS), verbose=0)
    evaluated = model.evaluate(FEATURES, LABELS, verbose=0)
    logits = model.predict(FEATURES, verbose=0)
    expected = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(LABELS, logits)
    np.testing.assert_allclose(evaluated, expected, rtol=1e-5)


def test_a_loss_can_define_what_evaluate_reports():
    class Ours(losses.TaggedLoss):
        def of_step(self, step):
            return tf.fill([len(step.features)], 1.0 if step.training else 7.0)

    head = make_head()
    assert float(Ours()(LABELS, head(FEATURES, training=True))) == 1
    assert float(Ours()(LABELS, head(FEATURES, training=False))) == 7
