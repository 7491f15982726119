"""Labels of every accepted form."""

import numpy as np
import tensorflow as tf

from tf_largeout.lazy_logits import as_label_matrix

ROWS = [[3, 1], [2, -1], [0, 4]]


def test_labels_whose_rank_is_not_known_are_taken_by_their_number():
    @tf.function(input_signature=[tf.TensorSpec(None, tf.int32), tf.TensorSpec([None, 5, 2])])
    def matrix(labels, features):
        return as_label_matrix(labels, features, num_classes=9)

    one, several = np.arange(5).reshape(1, 5), np.arange(-1, 9).reshape(1, 5, 2)
    np.testing.assert_array_equal(matrix(one, np.zeros((1, 5, 2))), one.T)
    np.testing.assert_array_equal(matrix(several, np.zeros((1, 5, 2))), several[0])
    assert matrix(np.zeros((0, 5, 3)), np.zeros((0, 5, 2))).shape == (0, 0)


def test_ragged_labels_are_padded():
    ragged = tf.ragged.constant([[3, 1], [2], [0, 4]], dtype=tf.int64)
    matrix = as_label_matrix(ragged, tf.zeros((3, 2)), num_classes=5)
    np.testing.assert_array_equal(matrix, ROWS)
