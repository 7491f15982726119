"""The encoder that every method of the benchmarks and examples shares."""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="tf_largeout")
class FeatureBag(keras.layers.Layer):
    """Bag of feature embeddings: their sum over the square root of their number.

    `h_b = sum_i table[ids[b, i]] / sqrt(n_b)`, where the sum runs over the `n_b` ids of the row
    that are not padding; a row of nothing but padding gives zeros.

    Padding is dropped before the table is read, and the table's gradient stays an
    `IndexedSlices` of the ids that occurred, so that a row-sparse optimizer pays for those.

    Args:
        num_features: rows of the table; row 0 stands for padding and is never read.
        dim: width of an embedding.
        embeddings_initializer: of the table; the default gives every feature a direction of
            its own at a scale that Adam changes within a few steps.

    Input shape: int [batch, max_features], padded with 0.
    Output shape: float [batch, dim].
    """

    def __init__(self, num_features, dim=128, embeddings_initializer=None, **kwargs):
        super().__init__(**kwargs)
        self.num_features = num_features
        self.dim = dim
        self.embeddings_initializer = keras.initializers.get(
            embeddings_initializer or keras.initializers.RandomNormal(stddev=0.05)
        )
        self.supports_jit = False

    def build(self, input_shape):
        self.table = self.add_weight(
            name="table",
            shape=[self.num_features, self.dim],
            initializer=self.embeddings_initializer,
            autocast=False,
        )

    def call(self, ids):
        ids = tf.cast(ids, tf.int64)  # a Sequential without an Input hands on floats
        present = ids > 0
        bag = tf.cast(tf.where(present)[:, 0], tf.int32)
        embeddings = tf.gather(self.table.value, tf.boolean_mask(ids, present))
        count = tf.reduce_sum(tf.cast(present, tf.float32), axis=1, keepdims=True)
        total = tf.math.segment_sum(embeddings, bag)  # ends at the last row that has an id
        total = tf.pad(total, [[0, tf.shape(ids)[0] - tf.shape(total)[0]], [0, 0]])
        return tf.cast(tf.math.divide_no_nan(total, tf.sqrt(count)), self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.dim)

    def get_config(self):
        return {
            **super().get_config(),
            "num_features": self.num_features,
            "dim": self.dim,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }
