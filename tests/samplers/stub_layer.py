import keras
import tensorflow as tf

from tf_largeout import samplers


@keras.saving.register_keras_serializable(package="tf_largeout_tests")
class StubLayer(keras.layers.Layer):
    """The least that a sampler asks of a layer."""

    def __init__(self, num_classes, sampler, first_seed=1, **kwargs):
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.sampler = samplers.get(sampler)
        self.first_seed = first_seed

    def build(self, input_shape=None):
        self.seed_state = self.add_weight(
            shape=[2],
            dtype="int64",
            initializer=lambda shape, dtype: tf.constant([self.first_seed, 0], dtype),
            trainable=False,
            autocast=False,
            aggregation="only_first_replica",
        )
        self.sampler.build(self)
        self.built = True

    def call(self, features):
        return features

    def next_seed(self):
        seed = tf.identity(self.seed_state.value)
        self.seed_state.assign(seed + [0, 1])
        return seed

    def local_variable(self, weight):
        return weight.value

    def sample(self, labels=((0, -1),)):
        return self.sampler.sample(None, tf.constant(labels, tf.int64), self)

    def expected_counts(self):
        """The expected count of every class."""
        labels = tf.range(self.num_classes, dtype=tf.int64)[:, tf.newaxis]
        return self.sampler.sample(None, labels, self).true_expected_count.numpy()[:, 0]

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "sampler": keras.saving.serialize_keras_object(self.sampler),
            "first_seed": self.first_seed,
        }


def built_layer(num_classes, sampler, first_seed=1):
    layer = StubLayer(num_classes, sampler, first_seed)
    layer.build()
    return layer
