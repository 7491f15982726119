"""Errors of `EmbeddingBag`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_largeout import layers

ROWS, DIM = 9, 3


def _layer(**kwargs):
    layer = layers.EmbeddingBag(ROWS, DIM, **kwargs)
    layer.build()
    return layer


@pytest.mark.parametrize("wrong", [ROWS, -1, -(2**40), 2**40])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_an_id_out_of_range_raises_an_error(wrong, training, run_eagerly):
    layer = _layer(name="names")
    call = layer if run_eagerly else tf.function(layer)
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        call(tf.constant([[1, 0], [wrong, 0]], tf.int64), training=training)
    message = f"'names' must be at least 0 and below input_dim={ROWS} or 0 for padding"
    assert message in str(error.value).replace("\\", "") and str(wrong) in str(error.value)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bool"])
def test_ids_that_are_not_integers_raise_an_error(dtype):
    for ids in (np.ones([2, 3], dtype), keras.Input([3], dtype=dtype)):
        with pytest.raises(ValueError, match=rf"must be integers.*{dtype}.*dtype='int64'"):
            _layer()(ids)


@pytest.mark.parametrize("training", [False, True])
def test_dense_bag_of_words_vectors_raise_an_error(training):
    # A `Sequential` without an input casts TF-IDF values to integers, here all to 0.
    model = keras.Sequential([_layer(name="words")])
    tfidf = np.full([4, ROWS], 0.3, "float32")
    for values in (tfidf, np.eye(ROWS, dtype="float32"), np.eye(ROWS, dtype="int64")):
        with pytest.raises(tf.errors.InvalidArgumentError, match="takes ids.*`weights`"):
            model(values, training=training)


def test_a_bag_may_contain_as_many_ids_as_there_are_rows():
    layer = _layer(combiner="sum")
    expected = layer.embeddings.numpy()[1:].sum(axis=0)
    np.testing.assert_allclose(layer(np.arange(ROWS)[np.newaxis])[0], expected, rtol=1e-5)


def test_inputs_of_a_wrong_shape_raise_an_error():
    layer = _layer()
    ids = np.ones([2, 3], "int64")
    with pytest.raises(ValueError, match=r"must be \[batch, ..., max_ids\].*\(2,\)"):
        layer(np.ones([2], "int64"))
    with pytest.raises(ValueError, match=r"`weights`.*\(2, 3\).*\(3, 2\)"):
        layer(ids, np.ones([3, 2], "float32"))
    with pytest.raises(ValueError, match=r"`weights`.*ragged where those are"):
        layer(tf.RaggedTensor.from_tensor(ids), np.ones([2, 3], "float32"))
    with pytest.raises(ValueError, match=r"keys 'ids' and 'weights'. Received: \['ids', 'w'\]"):
        layer({"ids": ids, "w": np.ones([2, 3], "float32")})


@pytest.mark.parametrize("name", ["EmbeddingBag", "HashedBigrams"])
def test_sparse_tensors_raise_an_error(name):
    layer = getattr(layers, name)(ROWS, 4, name="words")
    values = tf.sparse.from_dense([[1, 2, 0], [3, 0, 0]])
    for sparse in (keras.Input([3], sparse=True, dtype="int64"), values):
        with pytest.raises(ValueError, match=r"'words'.*sparse.*3\).*tf.sparse.to_dense"):
            layer(sparse)


def test_sparse_weights_raise_an_error():
    ids, weights = keras.Input([3], dtype="int64"), keras.Input([3], sparse=True)
    with pytest.raises(ValueError, match="not sparse tensors"):
        _layer()(ids, weights)


def test_weights_whose_shape_differs_at_run_time_raise_an_error():
    layer = _layer()
    unknown = [tf.TensorSpec([None, None], dtype) for dtype in (tf.int64, tf.float32)]
    call = tf.function(layer, input_signature=unknown)
    ids = tf.ones([2, 3], tf.int64)
    message = "must have the shape of `ids`"
    for shape in ([2, 4], [3, 2], [1, 3]):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            call(ids, tf.ones(shape))
    splits = [tf.RaggedTensor.from_row_lengths([1, 2, 3], n) for n in ([1, 2], [2, 1])]
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        layer(splits[0], tf.cast(splits[1], tf.float32))


@pytest.mark.parametrize(
    "argument, value",
    [("input_dim", 0), ("output_dim", 2.5), ("combiner", "max"), ("padding_id", 0.0)],
)
def test_invalid_arguments_raise_an_error(argument, value):
    arguments = {"input_dim": ROWS, "output_dim": DIM} | {argument: value}
    with pytest.raises(
        ValueError, match=f"`{argument}` must be.*Received: {argument}={value!r}"
    ):
        layers.EmbeddingBag(**arguments)
