"""Trains our example's model, or keras-rs's recipe, until a `Watch` stops it."""

import importlib.util
import math
import pathlib

import keras
import numpy as np
import tensorflow as tf

import tf_largeout as tflo

_EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "next_item.py"
# method: loss, sampler, num_sampled, LiGR
OURS = {
    "log_uniform": ("sampled_softmax", "log_uniform", 512, False),
    "uniform": ("sampled_softmax", "uniform", 512, False),
    "unigram": ("sampled_softmax", "unigram", 512, False),
    "inverted_file": ("sampled_softmax", "inverted_file", 512, False),
    "ligr": ("sampled_softmax", "log_uniform", 512, True),
    "gbce": ("gbce", "uniform", 256, False),
    "bce": ("bce", "uniform", 256, False),
    "softmax": ("softmax", None, None, False),
}
DIM, BATCH = 64, 32


class Counts:
    """What the example's samplers need to know of the data."""

    def __init__(self, counts):
        self.item_counts = counts


class UntilWatchStops(keras.callbacks.Callback):
    """Lowers the learning rate to zero with the time, and evaluates."""

    def __init__(self, watch, learning_rate, encode, table):
        super().__init__()
        self._watch, self._rate = watch, learning_rate
        self._encode, self._table = encode, table

    def on_train_batch_end(self, batch, logs=None):
        if self._rate is not None:
            self.model.optimizer.learning_rate = self._rate * (1 - self._watch.progress)
        self.model.stop_training = self._watch.step(self._encode, self._table)


def example():
    """Returns `examples/next_item.py` as a module."""
    spec = importlib.util.spec_from_file_location("next_item", _EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ours(method, watch, learning_rate, dropout):
    """Trains the model of `examples/next_item.py`."""
    program, data = example(), watch.data
    loss, sampler, num_sampled, ligr = OURS[method]
    num_classes, length = len(data["counts"]), data["x"].shape[1]
    if sampler:
        num_sampled = min(num_sampled, num_classes // 2)
        sampler = program.SAMPLERS[sampler](Counts(data["counts"]), num_sampled)
    bias = -math.log(num_sampled) if loss == "gbce" else None
    shape = num_classes, length, DIM
    model, _ = program.build_models(*shape, sampler, dropout, ligr, bias=bias)
    model.compile(tflo.optimizers.LazyAdam(learning_rate), program.LOSSES[loss]())
    head = model.layers[-1]
    encoder = keras.Model(model.input, model.layers[-2].output[:, -1])
    encode, table = _encode(encoder), lambda: head.embeddings.numpy()
    if bias is not None:
        encode, table = _with_ones(encode), lambda: _table_with_biases(head)
    callback = UntilWatchStops(watch, learning_rate, encode, table)
    _fit(model, _batches(data["x"], data["y"]), callback)
    return model.count_params()


def _encode(encoder):
    call = tf.function(lambda ids: encoder(ids, training=False), reduce_retracing=True)
    return lambda history: call(tf.constant(history)).numpy()


def _with_ones(encode):
    def encode_with_ones(history):
        features = encode(history)
        return np.concatenate([features, np.ones_like(features[:, :1])], axis=1)

    return encode_with_ones


def _table_with_biases(head):
    return np.concatenate([head.embeddings.numpy(), head.bias.numpy()[:, None]], axis=1)


def _batches(*arrays):
    data = tf.data.Dataset.from_tensor_slices(arrays if len(arrays) > 1 else arrays[0])
    shuffled = data.shuffle(len(arrays[0]), seed=keras.random.randint([], 0, 2**30).numpy())
    return shuffled.repeat().batch(BATCH)


def _fit(model, batches, callback):
    model.fit(batches, steps_per_epoch=10**6, callbacks=[callback], shuffle=False, verbose=0)


def keras_rs(watch, dropout):
    """Trains as keras-rs's example `sas_rec`: BCE with one negative, drawn beforehand.

    Keras's Adam updates all rows. Its L2 penalty of the table is left out, because the
    example's `compute_loss` does not add it.
    """
    import keras_hub

    data = watch.data
    num_classes, length = len(data["counts"]), data["x"].shape[1]
    ids = keras.Input([length], dtype="int32")
    table = keras_hub.layers.ReversibleEmbedding(
        num_classes, DIM, embeddings_initializer="glorot_uniform"
    )
    h = table(ids)
    h = h + keras_hub.layers.PositionEmbedding(length, initializer="glorot_uniform")(h)
    h = keras.layers.Dropout(dropout)(h)
    for _ in range(2):
        h = keras_hub.layers.TransformerDecoder(
            DIM,
            1,
            dropout=dropout,
            activation="relu",
            kernel_initializer="glorot_uniform",
            normalize_first=True,
        )(h, decoder_padding_mask=ids != 0)
    features = keras.layers.LayerNormalization(epsilon=1e-8)(h)
    encoder = keras.Model(ids, features)
    model = OneNegative(encoder, table)
    model.compile(keras.optimizers.Adam(1e-3, beta_2=0.98))
    negatives = np.random.default_rng(0).integers(1, num_classes, data["x"].shape)
    batches = _batches(data["x"], data["y"], negatives.astype(np.int32))
    batches = batches.map(lambda x, y, z: ((x, y, z),))
    callback = UntilWatchStops(
        watch,
        None,
        _encode(keras.Model(ids, features[:, -1])),
        lambda: table.embeddings.numpy(),
    )
    _fit(model, batches, callback)
    return model.count_params()


class OneNegative(keras.Model):
    """The loss of SASRec: one positive and one negative item at each position."""

    def __init__(self, encoder, table):
        super().__init__()
        self.encoder, self.table = encoder, table

    def call(self, inputs, training=None):
        ids, labels, negatives = inputs
        features = self.encoder(ids, training=training)
        right = keras.ops.sum(features * self.table(keras.ops.maximum(labels, 0)), -1)
        wrong = keras.ops.sum(features * self.table(negatives), -1)
        losses = keras.ops.softplus(-right) + keras.ops.softplus(wrong)
        weights = keras.ops.cast(labels >= 0, losses.dtype)
        self.add_loss(keras.ops.sum(losses * weights) / keras.ops.sum(weights))
        return right
