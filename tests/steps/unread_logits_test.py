"""When a training step computes logits that nothing may read: `are_unread`, and towers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.slow import slow_but

N, DIM, BATCH, SAMPLED = 500, 4, 12, 8
X = np.random.default_rng(0).normal(size=(BATCH, DIM)).astype("float32")
Y = np.arange(BATCH) * 7
OURS, KERAS = (
    "sampled_softmax_loss",
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)


class CountedEmbedding(keras.layers.Embedding):
    """An `Embedding` that keeps the number of ids of each call; TensorFlow does not drop it."""

    def call(self, ids):
        tf.numpy_function(lambda n: self.sizes.append(int(n)), [tf.size(ids)], [])
        return super().call(ids)


class WithOwnStep(keras.Sequential):
    def train_step(self, data):
        return super().train_step(data)


def model_of(sampler="uniform", after=None, kind=keras.Sequential):
    encoder = CountedEmbedding(N, DIM)
    encoder.sizes = []
    sampler = sampler and tflo.samplers.UniformSampler(SAMPLED)
    tower = tflo.layers.ItemTower(np.arange(N), encoder)
    output = tflo.layers.LargeOutput(N, sampler, embeddings=tower)
    return kind([keras.Input([DIM]), output, *(after or [])]), encoder.sizes


@pytest.mark.parametrize(
    ("loss", "metrics", "options", "is_read"),
    [
        (OURS, [], {}, False),
        (tflo.losses.SampledSoftmaxLoss(), [tflo.metrics.PrecisionAtK(1)], {}, False),
        ([OURS], ["precision_at_1"], {}, False),
        (OURS, ["accuracy"], {}, True),
        (OURS, [keras.metrics.SparseTopKCategoricalAccuracy(3)], {}, True),
        (KERAS, [], {}, True),
        (KERAS, [], {"after": [keras.layers.Activation("linear")]}, True),
        (OURS, [], {"kind": WithOwnStep}, True),
    ],
)
@pytest.mark.parametrize("eager", slow_but([True], [False, True]))
def test_a_step_computes_all_class_rows_only_if_something_reads_the_logits(
    loss, metrics, options, is_read, eager
):
    model, sizes = model_of(**options)
    optimizer = tflo.optimizers.LazyAdam()
    model.compile(optimizer, loss, metrics=metrics, run_eagerly=eager)
    sizes.clear()
    history = model.fit(X, Y, BATCH, verbose=0).history
    assert all(np.isfinite(values).all() for values in history.values())
    assert (max(sizes) == N) == is_read
    assert is_read or max(sizes) <= BATCH + SAMPLED


class Mode(keras.layers.Layer):
    """Keeps the mode of each call."""

    def call(self, rows, training=None):
        self.modes.add(training)
        return rows


@pytest.mark.parametrize(
    "loss",
    slow_but(
        [tflo.losses.SampledSoftmaxLoss],
        [tflo.losses.SampledSoftmaxLoss, tflo.losses.SoftmaxLoss],
    ),
)
def test_the_encoder_of_a_tower_is_in_training_mode_in_training_alone(loss):
    mode = Mode()
    mode.modes = set()
    tower = tflo.layers.ItemTower(np.eye(N, DIM), keras.Sequential([mode]))
    output = tflo.layers.LargeOutput(N, "uniform", embeddings=tower)
    model = keras.Sequential([keras.Input([DIM]), output])
    model.compile("sgd", loss())
    for run, expected in ((model.fit, True), (model.evaluate, False)):
        mode.modes.clear()
        run(X, Y, verbose=0)
        assert mode.modes == {expected}
