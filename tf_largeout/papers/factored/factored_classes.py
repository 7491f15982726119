"""`move_classes`: the factors of a `FactoredOutput` for other classes."""

import tensorflow as tf

from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.papers.factored.factored_output_ops import (
    FactoredState,
    factored_output_take_folds,
)
from tf_largeout.papers.factored.factored_update import gram_of, total_of


def move_classes(
    before: FactoredState, after: FactoredState, change: ClassChange, new_rows: tf.Tensor | None
) -> None:
    """Moves the rows of `W = V U + 1 omega'`, and computes `Q = W'W` and `w_bar = W'1`.

    U and omega do not change. So only the rows of V move for kept classes, and their rows of W
    are bit-identical. For a new row w of W, the row of V is `(w - omega) U^-1`.

    Args:
        before: The Keras variables of the layer with the old classes.
        after: Those of a newly built layer with the new classes, in which V is equal to W.
        change: Which classes are kept.
        new_rows: Float `[num_new, dim]`, the embeddings of the new classes; None for the
            initial ones of `after`. The biases are always those of `after`.
    """
    factored_output_take_folds(before)
    rows = tf.cast(after.vectors.value, tf.float64)[len(change.kept) :]
    if new_rows is not None:
        dim = new_rows.shape[1]
        rows = tf.concat([tf.cast(new_rows, tf.float64), rows[:, dim:]], axis=1)
    for name in ("mixing", "inverse", "offset", "steps"):
        change.copy(getattr(before, name), getattr(after, name))
    new_vectors = tf.matmul(rows - after.offset.value, after.inverse.value)
    change.move_rows(before.vectors, after.vectors, new_vectors)
    if change.is_permutation:  # sums over the same classes
        change.copy(before.gram, after.gram)
        change.copy(before.total, after.total)
        return
    _compute_sums(after)


def _compute_sums(state: FactoredState) -> None:
    mixing, offset = state.mixing.value, state.offset.value[:, tf.newaxis]
    gram = gram_of(state.vectors)(state.gram.shape, "float64")
    total = total_of(state.vectors)(state.total.shape, "float64")[:, tf.newaxis]
    count = tf.cast(state.vectors.shape[0], tf.float64)
    mixed = tf.matmul(mixing, total, transpose_a=True)
    cross = tf.matmul(mixed, offset, transpose_b=True)
    gram = tf.matmul(mixing, tf.matmul(gram, mixing), transpose_a=True)
    squares = count * tf.matmul(offset, offset, transpose_b=True)
    state.gram.assign(gram + cross + tf.transpose(cross) + squares)
    state.total.assign((mixed + count * offset)[:, 0])
