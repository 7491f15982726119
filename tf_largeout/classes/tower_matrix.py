"""`TowerMatrix`: classes whose rows a model computes from their features."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.classes import class_sums
from tf_largeout.classes.blockwise import BlockFunction
from tf_largeout.classes.class_matrix import ClassMatrix
from tf_largeout.classes.class_scorer import ClassScorer, new_products
from tf_largeout.classes.class_shard import ClassShard
from tf_largeout.classes.class_statistics import ClassStatistics
from tf_largeout.classes.normalized_matrix import unit_length
from tf_largeout.keras_internals import training_of_step
from tf_largeout.ops import row_ops
from tf_largeout.types import Elementwise

_COMPUTED_AT_ONCE = 4096


class TowerMatrix(ClassScorer):
    """Classes with the logits `o_c = <f(x_c), h> + b_c`, where f is a model of features x_c.

    A training step computes only the rows of the classes that it reads, with gradients. Passes
    over all classes without gradients read a copy of all rows. If a weight of the model has
    changed, they first compute this copy again. Rows that are not finite raise a
    `tf.errors.InvalidArgumentError`.

    Args:
        tower: Keras layer that returns the rows, float32 `[n, dim]`, of ids, int64 `[n]`.
        bias: Keras variable `[num_classes]`, or None.
        shape: `(num_classes, dim)`.
        owner: Name of the layer, for messages.
        normalize: Whether the rows are divided by their lengths.
    """

    def __init__(
        self,
        tower: keras.layers.Layer,
        bias: keras.Variable | None,
        shape: tuple[int, int],
        owner: str,
        normalize: bool,
    ) -> None:
        super().__init__(*shape, bias is not None, owner)
        self._tower, self._bias, self._normalize = tower, bias, normalize
        # Not weights of the layer: a file does not contain them.
        rows = keras.Variable(
            tf.zeros(shape), trainable=False, name="computed_rows", autocast=False
        )
        self._copy = ClassMatrix(rows, bias, owner)
        self._copied_from = tf.Variable(-1, trainable=False, dtype=tf.int64)

    def shards(self) -> list[ClassShard]:
        raise ValueError(
            f"The class rows of layer '{self._owner}' are computed from features, so its "
            "sampler cannot search them. Received: a sampler with a search structure. Use one "
            "without, such as 'uniform' or a UnigramSampler."
        )

    def variables(self) -> tuple[tf.Variable, tf.Variable | None]:
        """Returns the variables of the copy of all rows and of the bias.

        Raises:
            ValueError: If the bias is not float32.
        """
        return self._copy.variables()

    def as_products(self) -> tuple[tf.Variable, tf.Variable | None]:
        """Like `ClassScorer.as_products`: new variables with the computed rows."""
        return new_products(self.values(), None if self._bias is None else self._bias.value)

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        distinct, places = tf.unique(tf.reshape(ids, [-1]))
        rows = _gather_distinct(self._compute(distinct, _trains()), places)
        return tf.reshape(rows, tf.concat([tf.shape(ids), [self.dim]], axis=0))

    def values(self) -> tf.Tensor:
        return self.current().values()

    def logits(self, features: tf.Tensor) -> tf.Tensor:
        """Like `ClassScorer.logits`; with gradients, unless `evaluate` or `predict` runs."""
        if training_of_step() is False:
            return self.current().logits(features)
        rows = tf.cast(self._all_rows(), features.dtype)
        logits = tf.tensordot(features, rows, axes=[[-1], [1]])
        return logits if self._bias is None else logits + tf.cast(self._bias, features.dtype)

    def dots(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return self.dots_and_rows(features, ids, tf.zeros([0], tf.int64))[0]

    def dots_and_rows(
        self, features: tf.Tensor, ids: tf.Tensor, shared_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Like `ClassMatrix.dots_and_rows`; computes the row of each distinct class once."""
        own = tf.maximum(ids, 0)
        both = tf.concat([tf.reshape(own, [-1]), shared_ids], axis=0)
        sizes = [tf.size(own), tf.size(shared_ids)]
        own_rows, shared_rows = tf.split(self.rows(both), sizes)
        own_rows = tf.reshape(own_rows, tf.concat([tf.shape(ids), [self.dim]], axis=0))
        features = tf.cast(features, tf.float32)
        if ids.shape[-1] == 1:  # products of vectors are faster here than those of matrices
            logits = _dots(own_rows, tf.expand_dims(features, -2))
        else:
            logits = tf.linalg.matvec(own_rows, features)
        biases = tf.zeros(tf.shape(shared_ids))
        if self._bias is not None:
            of_own, biases = tf.split(tf.gather(self._biases(), both), sizes)
            logits += tf.reshape(of_own, tf.shape(ids))
        return tf.where(ids >= 0, logits, logits.dtype.min), shared_rows, biases

    def statistics(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        compute_dtype: str = "float32",
        training: bool = False,
    ) -> ClassStatistics:
        """Like `ClassScorer.statistics`. In training, another pass computes ranks if needed."""
        if not training:
            return self.current().statistics(features, labels, compute_dtype)
        self._require_float32(compute_dtype)
        features = tf.cast(features, tf.float32)
        found = self.exact_scores(features, labels)
        fixed = tf.stop_gradient(features)
        return ClassStatistics(*found, lambda: self.statistics(fixed, labels).ranks)

    def ranked_scores(
        self, features: tf.Tensor, ids: tf.Tensor, compute_dtype: str = "float32"
    ) -> tf.Tensor:
        """See `ClassScorer.ranked_scores`."""
        return self.current().ranked_scores(features, ids, compute_dtype)

    def exact_scores(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        function: Elementwise = tf.identity,
        others_only: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        rows, bias = self._all_rows(), self._biases()
        return class_sums.exact_scores(
            features, labels, rows, bias, function, others_only=others_only
        )

    def sum_over_classes(
        self, features: tf.Tensor, function: Elementwise, training: bool = False
    ) -> tf.Tensor:
        if not training:
            return self.current().sum_over_classes(features, function)
        return class_sums.sums_of_classes(
            tf.cast(features, tf.float32), self._all_rows(), self._biases(), term=function
        )[1]

    def top_k(self, features: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self.current().top_k(features, k)

    def fold_logits(
        self, features: tf.Tensor, function: BlockFunction, state: Any, **options: Any
    ) -> Any:
        return self.current().fold_logits(features, function, state, **options)

    def _compute(self, ids: tf.Tensor, training: bool) -> tf.Tensor:
        rows = self._tower(ids, training=training)
        # Faster than tf.debugging.check_numerics, and without its gradient, which would raise
        # errors for gradients that overflow. A `LossScaleOptimizer` skips those.
        check = checks.require(
            tf.reduce_all(tf.math.is_finite(rows)),
            [
                # Without quotes, before which TensorFlow would print a backslash.
                f"The ItemTower of the layer {self._owner} must compute class rows that are "
                "finite. Received NaN or infinity. If this is the first step, look for an "
                "encoder that divides by zero or takes the logarithm of a feature. If not, the "
                "training has diverged: restore a checkpoint, and lower the learning rate."
            ],
        )
        rows = checks.passed([check], rows)
        return unit_length(rows) if self._normalize else rows

    def _biases(self) -> tf.Tensor | None:
        bias = self.variables()[1]
        return None if bias is None else tf.convert_to_tensor(bias)

    def _all_rows(self) -> tf.Tensor:
        return self._compute(tf.range(self.num_classes, dtype=tf.int64), _trains())

    def current(self) -> ClassMatrix:
        """Returns the copy of all rows, up to date and without gradients."""
        now = tf.add_n(
            [_fingerprint(weight, i) for i, weight in enumerate(self._tower.weights)]
        )
        rows, count = self.variables()[0], self.num_classes

        def write(first: tf.Tensor) -> tuple[tf.Tensor]:
            end = tf.minimum(first + _COMPUTED_AT_ONCE, count)
            ids = tf.range(first, end)
            rows.scatter_update(tf.IndexedSlices(self._compute(ids, False), ids))
            return (end,)

        def write_all() -> tf.Tensor:
            start = (tf.constant(0, tf.int64),)
            end = tf.while_loop(
                lambda first: first < count, write, start, parallel_iterations=1
            )
            return self._copied_from.assign(checks.passed(end, now))

        tf.cond(now == self._copied_from, lambda: tf.identity(now), write_all)
        return self._copy


def _gather_distinct(rows: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Returns `tf.gather(rows, places)`, where `places` contains each row at least once.

    Its gradient is computed by `merge_rows`, which is faster than TensorFlow's
    `unsorted_segment_sum`.
    """

    @tf.custom_gradient
    def gather(rows: tf.Tensor) -> tuple[tf.Tensor, Any]:
        def gradient(d_gathered: tf.Tensor) -> tf.Tensor:
            d_rows, _ = row_ops.merge_rows(d_gathered, places)
            return d_rows[: tf.shape(rows)[0]]  # on a GPU, it is padded

        return tf.gather(rows, places), gradient

    return gather(rows)


@tf.custom_gradient
def _dots(rows: tf.Tensor, features: tf.Tensor) -> tuple[tf.Tensor, Any]:
    """Returns the sums over the last dimension of `rows * features`, of equal shapes.

    Its gradient is faster than TensorFlow's, which repeats the gradient of each sum.
    """

    def gradient(d_dots: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        d_dots = tf.expand_dims(d_dots, -1)
        return d_dots * features, d_dots * rows

    return tf.reduce_sum(rows * features, axis=-1), gradient


def _trains() -> bool:
    """Returns whether rows are needed for training. In a custom training loop, always True."""
    return training_of_step() is not False


def _fingerprint(weight: Any, place: int) -> tf.Tensor:
    """Returns a number in `[0, 2^31)` that very probably changes if a weight changes."""
    values = tf.reshape(tf.convert_to_tensor(weight), [-1])
    if values.dtype.is_floating:
        bits = tf.bitcast(tf.cast(values, tf.float32), tf.int32)
    else:
        bits = tf.cast(values, tf.int32)
    # Odd factors that differ by position: a change of one value always changes the sum.
    factors = (tf.range(tf.size(bits)) * 2 + 1) * (2 * place + 0x5BD1E995)
    mixed = tf.bitwise.bitwise_xor(bits, tf.bitwise.right_shift(bits, 15)) * factors
    return tf.bitwise.bitwise_and(tf.cast(tf.reduce_sum(mixed), tf.int64), 0x7FFFFFFF)
