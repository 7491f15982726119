"""`ClassMatrix`: the rows of all classes, and everything that is asked of them."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from tf_largeout.classes import blockwise
from tf_largeout.classes.class_shard import ClassShard
from tf_largeout.ops import class_scan_ops, row_dot_ops
from tf_largeout.variables import replicas, row_observers


class ClassStatistics(NamedTuple):
    """What one exact pass over all classes tells about a batch of `B` rows.

    Attributes:
        log_partition: float32 `[B]`, log of the sum over classes of `exp(logit)`.
        true_logits: float32 `[B, L]`, logits of the labels; 0 in padded places.
        ranks: int64 `[B, L]`, how many classes score higher than the label (of equal ones,
            those with a lower id); `num_classes` in padded places.
    """

    log_partition: tf.Tensor
    true_logits: tf.Tensor
    ranks: tf.Tensor


class AbsoluteStatistics(NamedTuple):
    """The `ClassStatistics` of `|logit|`, without the ranks, which take another pass.

    Attributes:
        log_partition: float32 `[B]`, log of the sum over classes of `exp(|logit|)`.
        true_logits: float32 `[B, L]`, `|logit|` of the labels; 0 in padded places.
    """

    log_partition: tf.Tensor
    true_logits: tf.Tensor


class ClassMatrix:
    """The embeddings `w_c` and biases `b_c` of all classes, which score `o_c = <w_c, h> + b_c`.

    An output layer holds one; its losses, metrics, samplers and indexes ask it and nothing
    else. Behind it may be variables of the layer's own or the table of an embedding layer.

    Args:
        embeddings: Keras variable `[num_classes, dim]`, one row per class.
        bias: Keras variable `[num_classes]`, or None.
        owner: Name of the layer, for messages.

    Attributes:
        num_classes: Number of rows.
        dim: Width of a row.
        has_bias: Whether the classes have biases.
    """

    def __init__(
        self, embeddings: keras.Variable, bias: keras.Variable | None, owner: str
    ) -> None:
        self._embeddings, self._bias, self._owner = embeddings, bias, owner
        self.num_classes, self.dim = embeddings.shape
        self.has_bias = bias is not None

    def variables(self) -> tuple[tf.Variable, tf.Variable | None]:
        """The `tf.Variable`s of embeddings and bias on the replica that runs the step.

        Raises:
            ValueError: If they are not float32, which is what the ops read.
        """
        for weight in (self._embeddings, self._bias):
            if weight is not None and str(weight.dtype) != "float32":
                raise ValueError(
                    f"Training, `evaluate` and `top_k` need float32 weights in layer "
                    f"'{self._owner}'. Received: '{weight.name}' of dtype {weight.dtype}. Take "
                    "the dtype policy 'float32', 'mixed_bfloat16' or 'mixed_float16'."
                )
        return replicas.local_variable(self._embeddings), (
            None if self._bias is None else replicas.local_variable(self._bias)
        )

    def shards(self) -> list[ClassShard]:
        """The ranges of classes that search structures are built over, a variable each."""
        return [ClassShard(matrix=self, first=0, num_rows=self.num_classes)]

    def as_products(self) -> tuple[tf.Variable, tf.Variable | None] | None:
        """Variables that score the classes by inner products alone; None if none can.

        For exports, which know no class of matrix: `embeddings` float32 `[num_classes, dim]`
        and `bias` `[num_classes]`, or None. They are the layer's own where it has such.
        """
        return self.variables()

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        """The embeddings, float32 `[..., dim]`, of `ids`, int64 `[...]`."""
        return tf.gather(self.variables()[0], ids)

    def logits(self, features: tf.Tensor) -> tf.Tensor:
        """The logits of all classes, `[..., num_classes]`, of the dtype of `features`.

        By stateless operations of TensorFlow, which prunes them where nobody takes the result.
        """
        embeddings = tf.cast(self._embeddings.value, features.dtype)
        logits = tf.tensordot(features, embeddings, axes=[[-1], [1]])
        if self._bias is None:
            return logits
        return logits + tf.cast(self._bias.value, features.dtype)

    def dots(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """The logits of classes of each row's own, see `ops.row_dots`.

        Args:
            features: Float `[B, dim]`.
            ids: int64 `[B, n]`, padded with -1.

        Returns:
            float32 `[B, n]`; the lowest float, without a gradient, at padding.
        """
        embeddings, bias = self.variables()
        return row_dot_ops.row_dots(features, embeddings, ids, bias)

    def dots_and_rows(
        self, features: tf.Tensor, ids: tf.Tensor, shared_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """`dots`, and rows and biases of classes that the batch shares.

        Read by one op, whose gradient is one `IndexedSlices` with a row per distinct class.

        Args:
            features: Float `[B, dim]`.
            ids: int64 `[B, n]`, padded with -1.
            shared_ids: int64 `[m]`.

        Returns:
            `(logits, rows, biases)`: float32 `[B, n]`, `[m, dim]` and `[m]`, zeros where the
            matrix has no bias.
        """
        embeddings, bias = self.variables()
        logits, rows, biases = row_dot_ops.row_dots_and_rows(
            features, embeddings, bias, ids, shared_ids
        )
        return logits, rows, tf.zeros(tf.shape(shared_ids)) if biases is None else biases

    def statistics(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        compute_dtype: str = "float32",
        training: bool = False,
    ) -> ClassStatistics:
        """The exact `ClassStatistics` of a batch, in one pass over the classes.

        Args:
            features: Float `[B, dim]`.
            labels: int64 `[B, L]`, padded with -1.
            compute_dtype: "float32" or "bfloat16", see `ops.class_statistics`.
            training: Whether gradients are taken and ranks hardly ever: a hint for shards.
        """
        scan = functools.partial(class_scan_ops.class_statistics, compute_dtype=compute_dtype)
        features = tf.cast(features, tf.float32)
        return ClassStatistics(*scan(features, *self.variables(), labels))

    def top_k(
        self, features: tf.Tensor, k: int, absolute: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The `k` classes with the highest logits, exactly, see `ops.class_top_k`.

        Args:
            features: float32 `[B, dim]`.
            k: Between 1 and `num_classes`.
            absolute: Whether the highest `|logit|` are meant, which are the scores then.

        Returns:
            `(scores, ids)`: float32 and int64 `[B, k]`, best first.
        """
        if not absolute:
            return class_scan_ops.class_top_k(features, *self.variables(), k)
        features = tf.debugging.check_numerics(features, "The features must be finite")
        return blockwise.top_k(self._absolute_fold(features), tf.shape(features)[0], k)

    def top_k_of(
        self,
        features: tf.Tensor,
        classes: tf.Tensor,
        k: int | tf.Tensor,
        absolute: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As `top_k`, among some classes alone, whose rows are all that is read of the matrix.

        Args:
            features: float32 `[B, dim]`.
            classes: int64 `[m]`, ids of classes, rising.
            k: Between 0 and m.
            absolute: As in `top_k`.
        """
        features = tf.debugging.check_numerics(features, "The features must be finite")
        fold: blockwise.Fold = functools.partial(self.fold_logits, features, classes=classes)
        if absolute:
            fold = self._absolute_fold(features, classes=classes)
        return blockwise.top_k(fold, tf.shape(features)[0], k)

    def absolute_statistics(self, features: tf.Tensor, labels: tf.Tensor) -> AbsoluteStatistics:
        """The `AbsoluteStatistics` of a batch, in one pass over the classes.

        Args:
            features: Float `[B, dim]`.
            labels: int64 `[B, L]`, padded with -1.
        """
        fold = self._absolute_fold(features, tf.shape(labels)[1])
        return AbsoluteStatistics(*blockwise.statistics(fold, labels))

    def absolute_ranks(
        self, features: tf.Tensor, labels: tf.Tensor, true_logits: tf.Tensor
    ) -> tf.Tensor:
        """How many classes have a higher `|logit|` than the label, in one pass.

        Args:
            features: Float `[B, dim]`.
            labels: int64 `[B, L]`, padded with -1.
            true_logits: float32 `[B, L]`, those of `absolute_statistics`.

        Returns:
            int64 `[B, L]`; of equal ones those with a lower id count; `num_classes` in padded
            places.
        """
        fold = self._absolute_fold(features, tf.shape(labels)[1])
        return blockwise.ranks(fold, labels, true_logits, self.num_classes)

    def fold_logits(
        self,
        features: tf.Tensor,
        function: Callable[[Any, tf.Tensor, tf.Tensor], Any],
        state: Any,
        width: int | tf.Tensor = 1,
        classes: tf.Tensor | None = None,
    ) -> Any:
        """Passes over the logits of all classes in blocks, for what no op computes.

        By operations that gather rows: nothing copies the matrix. In memory are
        `B * block * width` numbers, about 16 MiB. Equal features and width have equal blocks.

        Args:
            features: Float `[B, dim]`.
            function: `(state, logits, ids) -> state`, called for each block in turn: float32
                `[B, n]`, and int64 `[n]`, the classes, rising by 1 where all are passed over.
            state: What it is given for the first block: tensors, in any structure, that keep
                their shapes.
            width: How many numbers `function` makes of each logit.
            classes: int64 `[m]`, ids of the classes to pass over, in this order; None for all.

        Returns:
            The state after the last block.
        """
        embeddings, bias = self.variables()
        features = tf.cast(features, tf.float32)
        block = blockwise.block_size(tf.shape(features)[0], self.dim, width)
        count = self.num_classes if classes is None else tf.size(classes, tf.int64)

        def next_block(first: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
            end = tf.minimum(first + block, count)
            ids = tf.range(first, end) if classes is None else classes[first:end]
            logits = tf.matmul(features, tf.gather(embeddings, ids), transpose_b=True)
            if bias is not None:
                logits += tf.gather(bias, ids)
            return end, function(state, logits, ids)

        return tf.while_loop(
            lambda first, _: first < count,
            next_block,
            (tf.constant(0, tf.int64), state),
            parallel_iterations=1,
        )[1]

    def _absolute_fold(
        self, features: tf.Tensor, width: int | tf.Tensor = 1, classes: tf.Tensor | None = None
    ) -> blockwise.Fold:
        fold = functools.partial(self.fold_logits, features, width=width, classes=classes)
        return blockwise.of_absolute(fold)

    def values(self) -> tf.Tensor:
        """All embeddings, `[num_classes, dim]`, without the biases."""
        return tf.convert_to_tensor(self._embeddings.value)

    def each_replica(self, function: Callable[[], Any]) -> None:
        """Runs `function()` on each replica that has the rows, outside of a training step."""
        strategy = getattr(self._embeddings.value, "distribute_strategy", None)

        @tf.function
        def on_all_replicas() -> None:
            (strategy or tf.distribute.get_strategy()).run(function)

        on_all_replicas()

    def on_rows_changed(self, function: Callable[[tf.Tensor, tf.Tensor], None]) -> None:
        """Calls the method `function(ids, old_rows)` in each step, see `row_observers`."""
        row_observers.observe(self._embeddings, function)
