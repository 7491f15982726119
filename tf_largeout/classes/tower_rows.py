"""`TowerRows`: class rows that a model computes from features of the classes."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.classes.class_sums import DenseRows
from tf_largeout.classes.row_sources import (
    Products,
    RowSource,
    RowTable,
    Table,
    new_rows,
    tables_of,
    unit_length,
)
from tf_largeout.keras_internals import running_step
from tf_largeout.ops import devices, row_ops

_COMPUTED_AT_ONCE = 4096


class TowerRows(RowSource):
    """Class rows f(x_c), where f is a model of features x_c of the classes.

    A training step computes only the rows of the classes that it reads, with gradients. Passes
    over all classes without gradients read a copy of all rows. If a weight of the model has
    changed, they first compute this copy again. Rows that are not finite raise a
    `tf.errors.InvalidArgumentError`, except on a GPU. `tower` returns rows `[n, dim]` of ids,
    int64 `[n]`.
    """

    def __init__(
        self,
        tower: keras.layers.Layer,
        bias: keras.Variable | None,
        shape: tuple[int, int],
        owner: str,
        unit_rows: bool,
    ) -> None:
        # Not weights of the layer: a file does not contain them.
        rows = keras.Variable(
            tf.zeros(shape), trainable=False, name="computed_rows", autocast=False
        )
        self._copy = tables_of([rows], None if bias is None else [bias], owner)[0]
        super().__init__([self._copy])
        self._tower, self._bias, self._unit_rows = tower, bias, unit_rows
        self._copied_from = tf.Variable(-1, trainable=False, dtype=tf.int64)

    def shards(self) -> list[Table]:
        raise ValueError(
            f"The class rows of layer '{self.owner}' are computed from features, so its "
            "sampler cannot search them. Received: a sampler with a search structure. Use one "
            "without, such as 'uniform' or a UnigramSampler."
        )

    def tables(self) -> list[RowTable]:
        return [self.current()]

    def dense(self, training: bool = True) -> list[DenseRows]:
        if not training:
            return [self.current().dense()]
        return [DenseRows(self._copy, self._all_rows(), self._biases())]

    def own_passes(self, training: bool = False) -> list[Table] | None:
        return None if training else super().own_passes()

    def as_products(self) -> Products:
        """See `ClassScorer.as_products`: new variables with the computed rows."""
        return new_rows(self.values(), self.biases(), self.owner).as_products()

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        if running_step().is_compiled:  # XLA needs to know the number of distinct ids
            rows = self._compute(tf.reshape(ids, [-1]), _trains())
            return tf.reshape(rows, tf.concat([tf.shape(ids), [self.dim]], axis=0))
        with devices.host_ids_scope():
            distinct, places = tf.unique(tf.reshape(ids, [-1]))
        rows = _gather_distinct(self._compute(distinct, _trains()), places)
        return tf.reshape(rows, tf.concat([tf.shape(ids), [self.dim]], axis=0))

    def logits(self, queries: tf.Tensor) -> tf.Tensor:
        """See `ClassScorer.logits`; with gradients, unless `evaluate` or `predict` runs."""
        if running_step().training is False:
            return self.current().logits(queries)
        rows = tf.cast(self._all_rows(), queries.dtype)
        logits = tf.tensordot(queries, rows, axes=[[-1], [1]])
        return logits if self._bias is None else logits + tf.cast(self._bias, queries.dtype)

    def dots_and_rows(
        self, queries: tf.Tensor, ids: tf.Tensor, shared_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """See `RowSource.dots_and_rows`. It computes the row of each distinct class once."""
        with devices.host_ids_scope():
            own = tf.maximum(ids, 0)
            both = tf.concat([tf.reshape(own, [-1]), shared_ids], axis=0)
            sizes = [tf.size(own), tf.size(shared_ids)]
        own_rows, shared_rows = tf.split(self.rows(both), sizes)
        own_rows = tf.reshape(own_rows, tf.concat([tf.shape(ids), [self.dim]], axis=0))
        queries = tf.cast(queries, tf.float32)
        if ids.shape[-1] == 1:  # products of vectors are faster here than those of matrices
            logits = _dots(own_rows, tf.expand_dims(queries, -2))
        else:
            logits = tf.linalg.matvec(own_rows, queries)
        biases = tf.zeros(tf.shape(shared_ids))
        if self._bias is not None:
            of_own, biases = tf.split(tf.gather(self._biases(), both), sizes)
            logits += tf.reshape(of_own, tf.shape(ids))
        return tf.where(ids >= 0, logits, logits.dtype.min), shared_rows, biases

    def _compute(self, ids: tf.Tensor, training: bool) -> tf.Tensor:
        rows = self._tower(ids, training=training)
        if devices.runs_stock() and devices.is_on_gpu(self._tower.weights[0]):
            return unit_length(rows) if self._unit_rows else rows  # a check would wait
        # Faster than tf.debugging.check_numerics, and without its gradient, which would raise
        # errors for gradients that overflow. A `LossScaleOptimizer` skips those.
        check = checks.require(
            tf.reduce_all(tf.math.is_finite(rows)),
            [
                # Without quotes, before which TensorFlow would print a backslash.
                f"The ItemTower of the layer {self.owner} must compute class rows that are "
                "finite. Received NaN or infinity. If this is the first step, look for an "
                "encoder that divides by zero or takes the logarithm of a feature. If not, the "
                "training has diverged: restore a checkpoint, and lower the learning rate."
            ],
        )
        rows = checks.passed([check], rows)
        return unit_length(rows) if self._unit_rows else rows

    def _biases(self) -> tf.Tensor | None:
        bias = self._copy.variables()[1]
        return None if bias is None else tf.convert_to_tensor(bias)

    def _all_rows(self) -> tf.Tensor:
        return self._compute(tf.range(self.num_classes, dtype=tf.int64), _trains())

    def current(self) -> Table:
        """Returns the copy of all rows, up to date and without gradients."""
        now = tf.add_n(
            [_fingerprint(weight, i) for i, weight in enumerate(self._tower.weights)]
        )
        rows, count = self._copy.variables()[0], self.num_classes
        is_compiled, most = running_step().is_compiled, min(_COMPUTED_AT_ONCE, count)

        def write(first: tf.Tensor) -> tuple[tf.Tensor]:
            end = tf.minimum(first + _COMPUTED_AT_ONCE, count)
            # XLA needs blocks of one size, so there the last one has rows of the one before.
            ids = (
                end - most + tf.range(most, dtype=tf.int64)
                if is_compiled
                else tf.range(first, end)
            )
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

    Its gradient, by `merge_rows`, is faster than TensorFlow's `unsorted_segment_sum`.
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
    return running_step().training is not False


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
