"""Models to resize, and the expected variables afterwards."""

import keras
import numpy as np
import tensorflow as tf

import tf_largeout as tflo

N, DIM, BATCH = 43, 5, 8  # no other axis has N numbers
PERMUTATION = np.random.default_rng(5).permutation(N)
# A model with room: some classes kept, in another order, and some new.
KEPT = np.random.default_rng(6).permutation(N)[:30]
GROWN = 50


@keras.saving.register_keras_serializable("resize_problem")
class FollowedSampler(tflo.samplers.Sampler):
    """Draws the same classes before and after their ids change."""

    def build(self, layer):
        super().build(layer)
        ids = np.arange(self.num_sampled) * 3
        self.ids = self.add_weight(
            layer, "ids", ids.shape, "int64", lambda shape, dtype: tf.constant(ids, dtype)
        )

    def take_classes(self, before, change):
        self.ids.assign(change.new_ids()[before.ids.numpy()])

    def draw(self, features, labels, layer):
        ids = tf.convert_to_tensor(self.ids.value)
        return tflo.samplers.SampledValues(
            ids, tf.ones(tf.shape(labels)), tf.ones(tf.shape(ids))
        )


def examples(steps=3, seed=1, num_classes=N):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=[steps * BATCH, DIM]).astype("float32")
    return x, rng.integers(0, num_classes, steps * BATCH)


def fit(model, x, y, **kwargs):
    """Returns the loss of each epoch."""
    options = {"batch_size": BATCH, "shuffle": False, "verbose": 0, **kwargs}
    return model.fit(x, y, **options).history["loss"]


def sampled_model(optimizer=None, sampler=None, **kwargs):
    sampler = sampler or FollowedSampler(12, seed=1)
    head = tflo.layers.LargeOutput(N, sampler, name="head", **kwargs)
    return compiled_model(head, optimizer)


def compiled_model(head, optimizer=None):
    trunk = keras.layers.Dense(DIM, "tanh", name="trunk")
    model = keras.Sequential([keras.Input([DIM]), trunk, head], name="model")
    # Few steps: these are done before a graph of them would be traced.
    model.compile(
        optimizer or tflo.optimizers.LazyAdam(0.01),
        tflo.losses.SampledSoftmaxLoss(),
        run_eagerly=True,
    )
    return model


def state(model):
    """Returns all variables: name and values of each."""
    optimizer = [] if getattr(model, "optimizer", None) is None else model.optimizer.variables
    return [(one.name, one.numpy()) for one in [*model.variables, *optimizer]]


def assert_moved(before, after, kept):
    """Checks that class variables have moved to the new ids, and others are unchanged."""
    assert [name for name, _ in before] == [name for name, _ in after]
    for (name, values), (_, found) in zip(before, after, strict=True):
        if values.shape[:1] == (N,):
            values, found = values[kept], found[: len(kept)]
        if name != "sampler_ids":
            np.testing.assert_array_equal(found, values, err_msg=name)
