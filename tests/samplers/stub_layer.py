"""A layer with only what a sampler needs."""

import keras
import tensorflow as tf

from tf_largeout import samplers
from tf_largeout.classes.class_scorer import ClassMatrix


@keras.saving.register_keras_serializable(package="tf_largeout_tests")
class StubLayer(keras.layers.Layer):
    """`num_classes`, `class_matrix`, `seed_state`, `next_seed`, `add_weight` and `name`."""

    def __init__(self, num_classes, sampler, first_seed=1, dim=1, **kwargs):
        super().__init__(**kwargs)
        self.num_classes, self.first_seed, self.dim = num_classes, first_seed, dim
        self.sampler = samplers.get(sampler)

    def build(self, input_shape=None):
        self.embeddings = self.add_weight(
            shape=(self.num_classes, self.dim),
            initializer=keras.initializers.RandomNormal(seed=3),
            name="embeddings",
        )
        self.class_matrix = ClassMatrix(self.embeddings, None, self.name)
        self.seed_state = self.add_weight(
            shape=[2],
            dtype="int64",
            initializer=lambda shape, dtype: tf.constant([self.first_seed, 0], dtype),
            trainable=False,
            autocast=False,
            aggregation="only_first_replica",
            name="seed_state",
        )
        self.sampler.build(self)
        self.built = True

    def call(self, features):
        return features

    def next_seed(self):
        seed = tf.identity(self.seed_state.value)
        self.seed_state.assign(seed + [0, 1])
        return seed

    def sample(self, labels=((0, -1),), features=None):
        return self.sampler.sample(features, tf.constant(labels, tf.int64), self)

    def expected_counts(self):
        """Returns the expected count of each class, for a static sampler."""
        labels = tf.range(self.num_classes, dtype=tf.int64)[:, tf.newaxis]
        return self.sampler.sample(None, labels, self).true_expected_count.numpy()[:, 0]

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "sampler": keras.saving.serialize_keras_object(self.sampler),
            "first_seed": self.first_seed,
            "dim": self.dim,
        }


def built_layer(num_classes, sampler, first_seed=1, dim=1):
    layer = StubLayer(num_classes, sampler, first_seed, dim)
    layer.build()
    return layer
