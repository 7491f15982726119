"""`ClassMatrix`: the classes whose rows are in one variable."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.classes import blockwise, class_sums
from tf_largeout.classes.blockwise import BlockFunction
from tf_largeout.classes.class_scorer import ClassScorer, new_products
from tf_largeout.classes.class_statistics import ClassStatistics
from tf_largeout.ops import class_scan_ops, devices, row_dot_ops
from tf_largeout.ops.devices import handle_of
from tf_largeout.types import Elementwise, VariableOrHandle
from tf_largeout.variables import bfloat16_rows, replicas, row_observers


class ClassMatrix(ClassScorer):
    """Classes with embeddings `w_c` and biases `b_c`, with the logits `o_c = <w_c, h> + b_c`.

    The variables belong to the output layer, or to the embedding layer whose table it shares.

    Rows in bfloat16 (`bfloat16_rows`) are read in float32, and their gradients are float32.
    Passes over all classes convert the rows in blocks. A pass with gradients converts all rows
    at once, because the gradient takes as much memory. If another layer shares such rows, their
    gradients are bfloat16, because TensorFlow cannot add gradients of two dtypes.

    Args:
        embeddings: Keras variable `[num_classes, dim]`, one row per class.
        bias: Keras variable `[num_classes]`, or None.
        owner: Name of the layer, for messages.

    Raises:
        ValueError: If rows in bfloat16 are on a GPU.
    """

    def __init__(
        self, embeddings: keras.Variable, bias: keras.Variable | None, owner: str
    ) -> None:
        num_classes, dim = embeddings.shape
        super().__init__(num_classes, dim, bias is not None, owner)
        self._embeddings, self._bias = embeddings, bias
        self.is_rounded = bfloat16_rows.is_marked(embeddings)
        self._is_shared = bfloat16_rows.is_shared(embeddings)
        if self.is_rounded and devices.is_on_gpu(embeddings):
            raise ValueError(
                f"Layer '{owner}' has class rows in bfloat16, which must be in the memory of "
                f"the CPU. Received: rows on {embeddings.value.device}. Build the model in "
                "`with tf.device('CPU'):`, or use float32 rows."
            )

    def variables(self) -> tuple[tf.Variable, tf.Variable | None]:
        """Returns the `tf.Variable`s of the embeddings and the bias on the current replica.

        Raises:
            ValueError: If they are neither float32 nor rows in bfloat16.
        """
        for weight in (None if self.is_rounded else self._embeddings, self._bias):
            if weight is not None and str(weight.dtype) != "float32":
                raise ValueError(
                    f"Training, `evaluate` and `top_k` need float32 weights in layer "
                    f"'{self._owner}'. Received: '{weight.name}' of dtype {weight.dtype}. Use "
                    "the dtype policy 'float32', 'mixed_bfloat16' or 'mixed_float16'."
                )
        return replicas.local_variable(self._embeddings), (
            None if self._bias is None else replicas.local_variable(self._bias)
        )

    def as_products(self) -> tuple[tf.Variable, tf.Variable | None]:
        """Like `ClassScorer.as_products`: new variables if the rows are in bfloat16."""
        if not self.is_rounded:
            return self.variables()
        return new_products(self.values(), None if self._bias is None else self._bias.value)

    def has_own_pass(self) -> bool:
        """Returns whether ops make passes without gradients over the rows as they are read."""
        return not self.is_rounded and not (
            self.has_unit_rows and devices.is_on_gpu(self._embeddings)
        )

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        return self.as_read(self.stored_rows(ids))

    def stored_rows(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns rows of the variable, float32 `[..., dim]`, with a sparse gradient.

        Args:
            ids: int64 `[...]`.
        """
        if not self.is_rounded:
            return tf.gather(self.variables()[0], ids)
        nothing = tf.zeros([0, self.dim]), tf.zeros([0, 0], tf.int64)
        flat, rows = tf.reshape(ids, [-1]), self._rows_of_ops()
        rows = row_dot_ops.row_dots_and_rows(nothing[0], rows, None, nothing[1], flat)[1]
        return tf.reshape(rows, tf.concat([tf.shape(ids), [self.dim]], axis=0))

    def all_stored_rows(self) -> tf.Tensor:
        """Returns all rows of the variable, float32 `[num_classes, dim]`."""
        embeddings = self.variables()[0]
        if self._is_shared:
            return tf.cast(embeddings, tf.float32)
        if self.is_rounded:
            return bfloat16_rows.widened(embeddings)
        return tf.convert_to_tensor(embeddings)

    def _rows_of_ops(self) -> VariableOrHandle:
        """Returns the embeddings as an argument of `row_dot_ops`."""
        embeddings = self.variables()[0]
        return _with_bfloat16_gradient(embeddings) if self._is_shared else embeddings

    def as_read(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns class rows, `[..., dim]`, in the form in which the classes are scored."""
        return rows

    def values(self) -> tf.Tensor:
        if self.is_rounded:
            return self.as_read(self.all_stored_rows())
        return self.as_read(tf.convert_to_tensor(self._embeddings.value))

    def logits(self, features: tf.Tensor) -> tf.Tensor:
        embeddings = tf.cast(self.values(), features.dtype)
        logits = tf.tensordot(features, embeddings, axes=[[-1], [1]])
        if self._bias is None:
            return logits
        return logits + tf.cast(self._bias.value, features.dtype)

    def dots(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return row_dot_ops.row_dots(features, self._rows_of_ops(), ids, self.variables()[1])

    def dots_and_rows(
        self, features: tf.Tensor, ids: tf.Tensor, shared_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns `dots`, and the rows and biases of classes that all examples share.

        One op reads them. Its gradient is one `IndexedSlices` with a row per distinct class.

        Args:
            features: Float `[B, dim]`.
            ids: int64 `[B, n]`, padded with -1.
            shared_ids: int64 `[m]`.

        Returns:
            `(logits, rows, biases)`: float32 `[B, n]`, `[m, dim]` and `[m]`, zeros if the
            classes have no biases.
        """
        logits, rows, biases = row_dot_ops.row_dots_and_rows(
            features, self._rows_of_ops(), self.variables()[1], ids, shared_ids
        )
        return logits, rows, tf.zeros(tf.shape(shared_ids)) if biases is None else biases

    def statistics(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        compute_dtype: str = "float32",
        training: bool = False,
    ) -> ClassStatistics:
        """Like `ClassScorer.statistics`, in one pass over the classes."""
        if self.is_rounded:
            return statistics_in_blocks(self, features, labels, compute_dtype, training)
        features = tf.cast(features, tf.float32)
        return ClassStatistics(
            *class_scan_ops.class_statistics(
                features, *self.variables(), labels, compute_dtype=compute_dtype
            )
        )

    def ranked_scores(
        self, features: tf.Tensor, ids: tf.Tensor, compute_dtype: str = "float32"
    ) -> tf.Tensor:
        """Like `ClassScorer.ranked_scores`, without a pass over the classes; 0 at padding.

        Args:
            features: Float `[B, dim]`.
            ids: int64 `[B, n]`, padded with -1.
            compute_dtype: The `compute_dtype` of the `statistics`.
        """
        features = tf.cast(features, tf.float32)
        if self.is_rounded:
            return super().ranked_scores(features, ids)
        return class_scan_ops.label_logits(features, *self.variables(), ids, compute_dtype)

    def sum_over_classes(
        self, features: tf.Tensor, function: Elementwise, training: bool = False
    ) -> tf.Tensor:
        if not training:
            return super().sum_over_classes(features, function)
        bias = self.variables()[1]

        def score(features: tf.Tensor, rows: tf.Tensor, biases: tf.Tensor | None) -> tf.Tensor:
            return class_sums.dot_products(features, self.as_read(rows), biases)

        return class_sums.sums_of_classes(
            tf.cast(features, tf.float32),
            self.all_stored_rows(),
            None if bias is None else tf.convert_to_tensor(bias),
            score,
            function,
        )[1]

    def mean_logits(self, features: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Like `ClassScorer.mean_logits`, from the means of the embeddings and biases."""
        if self.is_rounded and not training:
            return super().mean_logits(features)
        bias = self.variables()[1]
        mean_row = tf.reduce_mean(self.as_read(self.all_stored_rows()), axis=0)
        means = tf.linalg.matvec(tf.cast(features, tf.float32), mean_row)
        return means if bias is None else means + tf.reduce_mean(bias)

    def top_k(self, features: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if self.is_rounded:
            return self.top_k_of(features, None, k)
        return class_scan_ops.class_top_k(features, *self.variables(), k)

    def fold_logits(
        self,
        features: tf.Tensor,
        function: BlockFunction,
        state: Any,
        *,
        width: int | tf.Tensor = 1,
        classes: tf.Tensor | None = None,
    ) -> Any:
        embeddings, bias = self.variables()
        features = tf.cast(features, tf.float32)
        block = blockwise.block_size(tf.shape(features)[0], self.dim, width)

        def rows_of_block(ids: tf.Tensor) -> tf.Tensor:
            if not self.is_rounded:
                return self.rows(ids)
            # Without our ops and without a gradient: exports have this loop.
            return self.as_read(tf.cast(tf.gather(embeddings, ids), tf.float32))

        def logits_of(ids: tf.Tensor) -> tf.Tensor:
            logits = tf.matmul(features, rows_of_block(ids), transpose_b=True)
            return logits if bias is None else logits + tf.gather(bias, ids)

        return blockwise.fold_blocks(
            logits_of, block, self.num_classes, classes, function, state
        )

    def exact_scores(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        function: Elementwise = tf.identity,
        others_only: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        bias = self.variables()[1]
        return class_sums.exact_scores(
            features,
            labels,
            self.all_stored_rows(),
            None if bias is None else tf.convert_to_tensor(bias),
            function,
            self.as_read,
            others_only,
        )

    def each_replica(self, function: Callable[[], Any]) -> None:
        strategy = getattr(self._embeddings.value, "distribute_strategy", None)

        @tf.function
        def on_all_replicas() -> None:
            (strategy or tf.distribute.get_strategy()).run(function)

        on_all_replicas()

    def on_rows_changed(self, function: Callable[[tf.Tensor, tf.Tensor], None]) -> None:
        """Calls `function(ids, old_rows)` after each update by a row-sparse optimizer.

        See `row_observers`. `function` is a method. Only a weak reference to its object is
        kept.
        """
        row_observers.observe(self._embeddings, function)


def _with_bfloat16_gradient(rows: tf.Variable) -> tf.Tensor:
    """Returns the handle of rows, for ops with float32 gradients; the gradient is bfloat16.

    The gradient of a lookup by the layer that shares the rows is bfloat16. TensorFlow adds only
    gradients of the same dtype. So float32 gradients are rounded to the nearest bfloat16.
    """

    @tf.custom_gradient
    def narrowed(handle: tf.Tensor) -> Any:
        def gradient(d_rows: tf.IndexedSlices) -> tf.IndexedSlices:
            values = tf.cast(d_rows.values, tf.bfloat16)
            return tf.IndexedSlices(values, d_rows.indices, d_rows.dense_shape)

        return tf.identity(handle), gradient

    return narrowed(handle_of(rows, watch=True))


def statistics_in_blocks(
    scorer: ClassScorer,
    features: tf.Tensor,
    labels: tf.Tensor,
    compute_dtype: str,
    training: bool,
) -> ClassStatistics:
    """Implements `ClassScorer.statistics` by `fold_logits`, and in training `exact_scores`."""
    features = tf.cast(features, tf.float32)
    if not training:
        return ClassScorer.statistics(scorer, features, labels, compute_dtype)
    scorer._require_float32(compute_dtype)
    found = scorer.exact_scores(features, labels)

    def ranks() -> tf.Tensor:
        return ClassScorer.statistics(scorer, tf.stop_gradient(features), labels).ranks

    return ClassStatistics(*found, ranks)


def statistics_by(
    own_pass: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]],
    scorer: ClassScorer,
    features: tf.Tensor,
    labels: tf.Tensor,
) -> ClassStatistics:
    """Returns the statistics of a pass that has no gradient, with gradients by another pass.

    Args:
        own_pass: Returns the arguments of `ClassStatistics` for features.
        scorer: The classes. The gradients are those of its `exact_scores`.
        features: Float `[B, dim]`.
        labels: int64 `[B, L]`, padded with -1.
    """

    @tf.custom_gradient
    def compute(features: tf.Tensor) -> Any:
        def gradient(
            *upstream: tf.Tensor, variables: Sequence[tf.Variable] | None = None
        ) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(features)
                found = scorer.exact_scores(features, labels)
            sources = [features, *(variables or [])]
            of_features, *others = tape.gradient(found, sources, list(upstream[:2]))
            return of_features if variables is None else (of_features, others)

        return own_pass(features), gradient

    return ClassStatistics(*compute(tf.cast(features, tf.float32)))
