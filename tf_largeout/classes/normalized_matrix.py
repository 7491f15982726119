"""`NormalizedMatrix`: classes whose rows are divided by their lengths."""

import tensorflow as tf

from tf_largeout.classes.class_matrix import (
    ClassMatrix,
    statistics_by,
    statistics_in_blocks,
)
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.classes.class_statistics import ClassStatistics
from tf_largeout.ops import class_scan_ops, row_dot_ops


class NormalizedMatrix(ClassMatrix):
    """Classes with the logits `o_c = <w_c / |w_c|, h> + b_c`.

    The variables hold rows of any length. Each method normalizes the rows that it reads, so
    time and memory grow with the number of rows that are read, and gradients stay sparse. A row
    of zeros has the cosine 0 with all features.
    """

    has_unit_rows = True

    def as_read(self, rows: tf.Tensor) -> tf.Tensor:
        return unit_length(rows)

    def as_products(self) -> tuple[tf.Variable, tf.Variable | None]:
        """Like `ClassScorer.as_products`: a new variable with the normalized rows."""
        return tf.Variable(self.values(), trainable=False, name="embeddings"), (
            self.variables()[1]
        )

    def dots(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return self.dots_and_rows(features, ids, tf.zeros([0], tf.int64))[0]

    def dots_and_rows(
        self, features: tf.Tensor, ids: tf.Tensor, shared_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Like `ClassMatrix.dots_and_rows`, with normalized rows.

        The length of a row is computed once, even if its class is in `ids` several times.
        """
        bias = self.variables()[1]
        products, rows, _ = row_dot_ops.row_dots_and_rows(
            features, self._rows_of_ops(), None, ids, shared_ids
        )
        is_class = ids >= 0
        flat = tf.reshape(tf.maximum(ids, 0), [-1])
        distinct, places = tf.unique(flat)
        scales = tf.gather(_inverse_length(self.stored_rows(distinct)), places)
        logits = tf.where(is_class, products, 0) * tf.reshape(scales, tf.shape(ids))
        biases = tf.zeros(tf.shape(shared_ids))
        if bias is not None:
            both = tf.gather(bias, tf.concat([flat, shared_ids], axis=0))
            of_own, biases = tf.split(both, [tf.size(flat), tf.size(shared_ids)])
            logits += tf.reshape(of_own, tf.shape(ids))
        lowest = logits.dtype.min
        return tf.where(is_class, logits, lowest), self.as_read(rows), biases

    def statistics(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        compute_dtype: str = "float32",
        training: bool = False,
    ) -> ClassStatistics:
        """Like `ClassScorer.statistics`. In training, another pass computes ranks if needed."""
        if training or not self.has_own_pass():
            return statistics_in_blocks(self, features, labels, compute_dtype, training)
        self._require_float32(compute_dtype)

        def own_pass(features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            return class_scan_ops.class_statistics(
                features, *self.variables(), labels, unit_length=True
            )

        return statistics_by(own_pass, self, features, labels)

    def ranked_scores(
        self, features: tf.Tensor, ids: tf.Tensor, compute_dtype: str = "float32"
    ) -> tf.Tensor:
        """See `ClassMatrix.ranked_scores`. On a GPU, a pass over the classes computes them."""
        features = tf.cast(features, tf.float32)
        if not self.has_own_pass():
            return ClassScorer.ranked_scores(self, features, ids)
        return class_scan_ops.label_logits(features, *self.variables(), ids, unit_length=True)

    def top_k(self, features: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if not self.has_own_pass():
            return self.top_k_of(features, None, k)
        return class_scan_ops.class_top_k(features, *self.variables(), k, unit_length=True)


def unit_length(vectors: tf.Tensor) -> tf.Tensor:
    """Returns vectors of length 1, `[..., dim]`; vectors of zeros stay zeros.

    As `tf.math.l2_normalize`, with its epsilon of 1e-12, but without overflow for large values.
    """
    return vectors * _inverse_length(vectors)[..., tf.newaxis]


def _inverse_length(vectors: tf.Tensor) -> tf.Tensor:
    """Returns `1 / max(|v|, 1e-6)`, `[...]`."""
    # Dividing by a constant first does not change a direction, but squares cannot overflow.
    largest = tf.maximum(tf.reduce_max(tf.abs(tf.stop_gradient(vectors)), axis=-1), 1)
    squares = tf.reduce_sum(tf.square(vectors / largest[..., tf.newaxis]), axis=-1)
    return tf.math.rsqrt(tf.maximum(squares, 1e-12)) / largest
