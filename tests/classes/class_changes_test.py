import keras
import numpy as np
import pytest

from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.variables import class_rows


def test_the_default_keeps_as_many_classes_as_fit():
    np.testing.assert_array_equal(ClassChange(3, 5).kept, [0, 1, 2])
    np.testing.assert_array_equal(ClassChange(5, 3).kept, [0, 1, 2])
    assert ClassChange(3, 5).num_new == 2 and ClassChange(5, 3).num_new == 0


@pytest.mark.parametrize(
    "arguments, is_permutation, is_identity",
    [
        ((3, 3), True, True),
        ((3, 3, [0, 2, 1]), True, False),
        ((3, 3, [0, 1]), False, False),
        ((3, 4), False, False),
        ((4, 3), False, False),
        ((3, 3, []), False, False),
    ],
)
def test_permutations_and_identities_are_recognized(arguments, is_permutation, is_identity):
    change = ClassChange(*arguments)
    assert (change.is_permutation, change.is_identity) == (is_permutation, is_identity)


def test_ids_arrays_and_rows_are_moved(monkeypatch):
    monkeypatch.setattr(class_rows, "_BLOCK", 2)  # one row
    change = ClassChange(4, 5, np.array([3, 1], np.int32))
    np.testing.assert_array_equal(change.new_ids(), [-1, 1, -1, 0])
    np.testing.assert_array_equal(change.moved(np.array([5, 6, 7, 8]), 0), [8, 6, 0, 0, 0])
    before = keras.Variable(np.arange(8.0).reshape(4, 2))
    after = keras.Variable(-np.ones([5, 2]))
    change.move_rows(before, after)
    np.testing.assert_array_equal(after, [[6, 7], [2, 3], [-1, -1], [-1, -1], [-1, -1]])
    change.move_rows(before, after, np.ones([3, 2], "float32"))
    np.testing.assert_array_equal(after, [[6, 7], [2, 3], [1, 1], [1, 1], [1, 1]])


@pytest.mark.parametrize(
    "num_classes, kept, message",
    [
        (0, None, "`num_classes` must be a positive integer.*num_classes=0"),
        (2.0, None, "`num_classes` must be.*float"),
        (2**31, None, "at most 2147483646"),
        (4, [0, 4], "from 0 to 3. Received: 4"),
        (4, [-1, 2], "from 0 to 3. Received: -1"),
        (4, [2, 1, 2], "each class once. Received class 2 2 times"),
        (2, [0, 1, 2], "names 3 classes, more than num_classes=2"),
        (4, [0.0, 1.0], "old class ids.*float64"),
        (4, [[0, 1]], r"shape \(1, 2\)"),
        (4, [True, False, True, True], "np.flatnonzero"),
    ],
)
def test_invalid_arguments_raise_an_error(num_classes, kept, message):
    with pytest.raises(ValueError, match=message):
        ClassChange(4, num_classes, kept)
