import keras
import numpy as np
import tensorflow as tf

from tf_largeout.benchmarks.encoder import FeatureBag

IDS = np.array([[3, 1, 3, 0], [0, 0, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0]], np.int32)


def test_bag_is_the_sum_over_the_root_of_the_number_of_ids():
    layer = FeatureBag(5, dim=3)
    bags = layer(IDS).numpy()
    table = layer.table.numpy()
    np.testing.assert_allclose(bags[0], (2 * table[3] + table[1]) / np.sqrt(3), rtol=1e-6)
    np.testing.assert_allclose(bags[2], table[2], rtol=1e-6)


def test_rows_of_padding_alone_give_zeros():
    bags = FeatureBag(5, dim=3)(IDS).numpy()
    assert bags.shape == (4, 3)
    assert not bags[1].any() and not bags[3].any()


def test_gradient_of_the_table_holds_the_ids_that_occur_and_no_padding():
    layer = FeatureBag(5, dim=3)
    layer.build(IDS.shape)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(IDS))
    gradient = tape.gradient(loss, layer.table.value)
    assert isinstance(gradient, tf.IndexedSlices)
    assert sorted(gradient.indices.numpy()) == [1, 2, 3, 3]


def test_layer_survives_its_config():
    layer = FeatureBag(5, dim=3, embeddings_initializer="zeros", name="bag")
    config = keras.saving.serialize_keras_object(layer)
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == layer.get_config()


def test_a_sequential_without_input_reads_the_same_rows():
    layer = FeatureBag(5, dim=3)
    np.testing.assert_array_equal(keras.Sequential([layer])(IDS), layer(IDS))
