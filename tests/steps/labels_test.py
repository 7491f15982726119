"""Accepted forms of labels, and errors of other forms."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.slow import slow_but
from tf_largeout.steps.labels import as_labels, first_occurrences

ROWS = [[3, 1], [2, -1], [0, 4]]
NUM_CLASSES = 9


def in_graph(features_shape, labels_shape, dtype=tf.int64):
    """Runs `as_labels` in a graph that knows only the given shapes."""

    @tf.function(
        autograph=False,
        input_signature=[tf.TensorSpec(labels_shape, dtype), tf.TensorSpec(features_shape)],
    )
    def matrix(labels, features):
        return as_labels(labels, features, NUM_CLASSES).ids

    return matrix


UNKNOWN = {
    "dimensions": ([None, None, 2], lambda labels: [None] * np.ndim(labels)),
    "rank": ([None, None, 2], lambda labels: None),
    "batch": ([None, 3, 2], lambda labels: None),
}


def matrix_of(unknown, labels, features):
    features_shape, labels_shape = UNKNOWN[unknown]
    return in_graph(features_shape, labels_shape(labels))(labels, features)


@pytest.mark.parametrize(
    "shape, unknown",
    slow_but(
        [
            ((4, 3), "rank"),
            ((4, 3), "batch"),
            ((4, 3, 1), "dimensions"),
            ((4, 3, 5), "rank"),
            ((4, 3, 5), "batch"),
            ((4, 3, 0), "dimensions"),
        ],
        itertools.product([(4, 3), (4, 3, 1), (4, 3, 5), (4, 3, 0)], UNKNOWN),
    ),
)
def test_labels_with_shapes_known_only_at_run_time_are_flattened(unknown, shape):
    labels = np.arange(np.prod(shape)).reshape(shape) % NUM_CLASSES
    matrix = matrix_of(unknown, labels, np.zeros((4, 3, 2)))
    np.testing.assert_array_equal(matrix, labels.reshape(12, *(shape[2:] or (1,))))


@pytest.mark.parametrize(
    "shape, unknown",
    slow_but(
        [
            ((3, 4), "rank"),
            ((6, 2), "dimensions"),
            ((12, 1), "batch"),
            ((4, 1), "rank"),
            ((3, 4, 1), "dimensions"),
            ((4, 6, 1), "rank"),
        ],
        itertools.product([(3, 4), (6, 2), (12, 1), (4, 1), (3, 4, 1), (4, 6, 1)], UNKNOWN),
    ),
)
def test_mismatched_shapes_raise_an_error_at_run_time(unknown, shape):
    labels = np.zeros(shape, np.int64)
    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)) as caught:
        matrix_of(unknown, labels, np.zeros((4, 3, 2)))
    assert "labels must have the shape" in str(caught.value)
    assert " ".join(map(str, shape)) in str(caught.value)


def test_excluded_classes_of_a_sequence_need_a_time_dimension():
    with pytest.raises(ValueError, match=r"must have the shape \(4, 3, n\). Received"):
        as_labels(np.zeros((4, 8), np.int64), tf.zeros((4, 3, 2)), NUM_CLASSES)


@pytest.mark.parametrize("shape", [(), (4,), (12,), (4, 3, 1, 1)])
def test_a_mismatched_rank_raises_an_error_at_run_time(shape):
    with pytest.raises(tf.errors.InvalidArgumentError, match="labels must have the shape"):
        matrix_of("rank", np.zeros(shape, np.int64), np.zeros((4, 3, 2)))


def test_an_empty_batch_of_unknown_rank_keeps_its_width():
    matrix = matrix_of("rank", np.zeros((0, 5, 3), np.int64), np.zeros((0, 5, 2)))
    assert matrix.shape == (0, 3)


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint64])
def test_ragged_labels_are_padded(dtype):
    ragged = tf.cast(tf.ragged.constant([[3, 1], [2], [0, 4]]), dtype)
    matrix = as_labels(ragged, tf.zeros((3, 2)), num_classes=5).ids
    np.testing.assert_array_equal(matrix, ROWS)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
def test_labels_of_every_integer_type_are_accepted(dtype):
    matrix = as_labels(np.array([5, 100], dtype), tf.zeros((2, 2)), num_classes=1000).ids
    np.testing.assert_array_equal(matrix, [[5], [100]])


@pytest.mark.parametrize("label", [2**64 - 1, 2**63, 2**64 - 2**62])
def test_unsigned_labels_that_int64_cannot_hold_are_out_of_range(label):
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"class ids in \[0, 9\)"):
        as_labels(np.array([3, label], "uint64"), tf.zeros((2, 2)), NUM_CLASSES)


@pytest.mark.parametrize(
    "labels",
    [None, [[1, 2], [3]], [["a"], ["b"]], np.array([[1], [2, 3]], object), [1.0, 2.0]],
    ids=["None", "uneven lists", "text", "objects", "floats"],
)
def test_the_error_of_unsupported_labels_names_the_accepted_forms(labels):
    with pytest.raises(ValueError, match=r"(?s)padded with -1.*tf.ragged.constant.*Received"):
        as_labels(labels, tf.zeros((2, 2)), NUM_CLASSES)


def test_the_error_of_sparse_labels_names_the_accepted_forms():
    sparse = tf.sparse.from_dense(np.eye(2, NUM_CLASSES, dtype=np.int64))
    with pytest.raises(ValueError, match="tf.ragged.constant.*type SparseTensor"):
        as_labels(sparse, tf.zeros((2, 2)), NUM_CLASSES)


def multi_hot(*rows):
    return np.array([np.isin(np.arange(NUM_CLASSES), row) for row in rows], np.int64)


@pytest.mark.parametrize("rows", [[[0]], [[3, 5], []], [range(NUM_CLASSES)], [[]]])
@pytest.mark.parametrize("width", [NUM_CLASSES, None])
def test_multi_hot_labels_raise_an_error(rows, width):
    labels = multi_hot(*rows)
    with pytest.raises(tf.errors.InvalidArgumentError, match="multi-hot.*tf.ragged"):
        in_graph([None, 2], [None, width])(labels, np.zeros((len(labels), 2)))


def test_one_hot_labels_of_two_classes_raise_an_error():
    with pytest.raises(tf.errors.InvalidArgumentError, match="multi-hot"):
        as_labels(np.array([[0, 1], [1, 0]]), tf.zeros((2, 2)), num_classes=2)


def test_multi_hot_labels_of_sequences_raise_an_error():
    labels = multi_hot([1], [2], [3], [4, 5]).reshape(2, 2, NUM_CLASSES)
    with pytest.raises(tf.errors.InvalidArgumentError, match="multi-hot"):
        as_labels(labels, tf.zeros((2, 2, 3)), NUM_CLASSES)


def test_the_advice_for_multi_hot_labels_gives_their_ids():
    y = multi_hot([3, 5], [], [0])
    ids = tf.ragged.boolean_mask(tf.range(NUM_CLASSES) + tf.zeros_like(y, tf.int32), y > 0)
    matrix = as_labels(ids, tf.zeros((3, 2)), NUM_CLASSES).ids
    np.testing.assert_array_equal(matrix, [[3, 5], [-1, -1], [0, -1]])


@pytest.mark.parametrize(
    "labels, num_classes",
    [
        ([[0, 1, -1], [1, -1, -1]], 3),  # Padded.
        ([[0, 1, 2], [0, 1, 1]], 3),  # All classes of one example.
        ([[0, 0, 1, 1]], 3),  # Another width.
        ([[0, 1, -1], [1, -1, -1]], 2),
        ([[0], [0]], 1),
        (np.zeros((0, 3), np.int64), 3),
    ],
)
def test_valid_ids_of_0_and_1_are_accepted(labels, num_classes):
    matrix = as_labels(np.array(labels), tf.zeros((len(labels), 2)), num_classes).ids
    np.testing.assert_array_equal(matrix, labels)


def test_sequences_with_labels_0_and_1_are_accepted():
    labels = np.array([[0, 1, 1], [1, 1, 0]])  # As many positions as classes.
    matrix = as_labels(labels, tf.zeros((2, 3, 4)), num_classes=3).ids
    np.testing.assert_array_equal(matrix, labels.reshape(6, 1))


@pytest.mark.parametrize("shape", [(40, 13), (7, 1), (5, 0), (0, 4)])
def test_first_occurrences_equal_those_of_a_loop(shape):
    labels = np.random.default_rng(0).integers(-1, 9, shape)
    expected = [
        [label >= 0 and label not in row[:place] for place, label in enumerate(row)]
        for row in labels.tolist()
    ]
    actual = first_occurrences(tf.constant(labels, tf.int64))
    np.testing.assert_array_equal(actual, np.reshape(expected, shape))
