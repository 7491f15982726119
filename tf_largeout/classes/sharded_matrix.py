"""`ShardedMatrix`: classes whose rows are in several variables, on one machine or on many."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import keras
import tensorflow as tf

from tf_largeout.classes.class_matrix import ClassMatrix, ClassStatistics
from tf_largeout.classes.class_shard import ClassShard
from tf_largeout.ops import class_scan_ops
from tf_largeout.variables.row_shard import map_by_shard, split

_NOTHING = -float("inf")


class ShardedMatrix(ClassMatrix):
    """A `ClassMatrix` whose rows are cut into ranges, a variable each.

    Everything that is asked of all classes, or of rows, is asked of each shard by ops on the
    device of its variables, and put together: log partitions by a logsumexp, ranks by their
    sum, the best classes by their order. So ids, features, scores and touched rows go from
    device to device, and never the matrix, but where somebody asks for it (`values`,
    `as_products`).

    Logits of given classes, ranks and `top_k` are equal to those of one shard to the bit. So
    are the gradients of a sampled loss with one label per row. Sums over all classes, and over
    a row's classes in different shards, have another order, which changes last bits.
    `tf.matmul` computes the scores of `fold_logits`, `top_k_of` and everything absolute. Its
    last bits depend on the number of classes in a call, so these too are equal up to rounding.

    Args:
        embeddings: Keras variables `[n_i, dim]`, in the order of the classes.
        biases: Keras variables `[n_i]` on the same devices, or None.
        owner: Name of the layer, for messages.
    """

    def __init__(
        self,
        embeddings: Sequence[keras.Variable],
        biases: Sequence[keras.Variable] | None,
        owner: str,
    ) -> None:
        self._owner, self.dim = owner, embeddings[0].shape[1]
        self.has_bias = biases is not None
        self._biases = list(biases or [])
        self._shards: list[ClassShard] = []
        self.num_classes = 0
        for number, rows in enumerate(embeddings):
            bias = None if biases is None else biases[number]
            matrix = ClassMatrix(rows, bias, owner)
            shard = ClassShard(
                matrix=matrix,
                first=self.num_classes,
                num_rows=matrix.num_classes,
                number=number,
                num_shards=len(embeddings),
                device_anchor=rows,
            )
            self._shards.append(shard)
            self.num_classes += matrix.num_classes

    def shards(self) -> list[ClassShard]:
        return self._shards

    def variables(self) -> NoReturn:
        """There are several: a ValueError."""
        raise ValueError(
            f"The classes of layer '{self._owner}' are in {len(self._shards)} shards, and what "
            "reads all of their rows in one variable cannot. Take num_shards=1 for it, or "
            "`class_embeddings()`, which gathers them."
        )

    def as_products(self) -> tuple[tf.Variable, tf.Variable | None]:
        """New variables on this machine, of the size of all shards."""
        biases = [bias.value for bias in self._biases]
        return _variable(self.values(), "embeddings"), (
            _variable(tf.concat(biases, axis=0), "bias") if biases else None
        )

    def values(self) -> tf.Tensor:
        return tf.concat([shard.matrix.values() for shard in self._shards], axis=0)

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        flat = tf.reshape(self._checked(ids), [-1])
        rows = map_by_shard(self._shards, flat, lambda shard, own: shard.matrix.rows(own))
        return tf.reshape(rows, tf.concat([tf.shape(ids), [self.dim]], axis=0))

    def logits(self, features: tf.Tensor) -> tf.Tensor:
        return tf.concat(self._each(lambda shard: shard.matrix.logits(features)), axis=-1)

    def dots(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return self.dots_and_rows(features, ids, tf.zeros([0], tf.int64))[0]

    def dots_and_rows(
        self, features: tf.Tensor, ids: tf.Tensor, shared_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        ids = self._checked(ids)
        places, parts = split(self._shards, self._checked(shared_ids))
        logits, rows, biases = None, [], []
        for shard, part in zip(self._shards, parts, strict=True):
            own_ids = shard.to_local(ids)
            with shard.place():
                found = shard.matrix.dots_and_rows(features, own_ids, part)
            logits = (
                found[0] if logits is None else tf.where(shard.contains(ids), found[0], logits)
            )
            rows.append(found[1])
            biases.append(found[2])
        all_rows = tf.dynamic_stitch(places, rows)
        return (
            logits,
            tf.ensure_shape(all_rows, [shared_ids.shape[0], self.dim]),
            tf.ensure_shape(tf.dynamic_stitch(places, biases), shared_ids.shape),
        )

    def statistics(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        compute_dtype: str = "float32",
        training: bool = False,
    ) -> ClassStatistics:
        """As `ClassMatrix.statistics`, in one pass over each shard.

        In training log partitions and logits are those of one pass, which has one gradient, and
        ranks, if anybody takes them, of another. Else the logits of the labels are found first,
        to the bit as the pass has them, so that it can rank them.
        """
        features, labels = tf.cast(features, tf.float32), self._checked(labels)

        def of_own(shard: ClassShard) -> ClassStatistics:
            return shard.matrix.statistics(features, shard.to_local(labels), compute_dtype)

        def own_logits(shard: ClassShard) -> tf.Tensor:
            embeddings, bias = shard.matrix.variables()
            own = shard.to_local(labels)
            return class_scan_ops.label_logits(features, embeddings, bias, own, compute_dtype)

        if not training:
            true_logits = tf.add_n(self._each(own_logits))
            found = self._scan(features, labels, true_logits, compute_dtype)
            log_partitions = [one.log_partition for one in found]
        else:
            own = self._each(of_own)
            true_logits = tf.add_n([one.true_logits for one in own])
            log_partitions = [one.log_partition for one in own]
            found = self._scan(tf.stop_gradient(features), labels, true_logits, compute_dtype)
        return ClassStatistics(
            tf.reduce_logsumexp(tf.stack(log_partitions), axis=0),
            true_logits,
            tf.add_n([one.ranks for one in found]),
        )

    def _scan(
        self, features: tf.Tensor, labels: tf.Tensor, true_logits: tf.Tensor, compute_dtype: str
    ) -> list[ClassStatistics]:
        """The statistics of each shard alone, but of labels that may be in another."""
        fixed = tf.stop_gradient(true_logits)

        def of(shard: ClassShard) -> ClassStatistics:
            embeddings, bias = shard.matrix.variables()
            return ClassStatistics(
                *class_scan_ops.class_statistics(
                    features, embeddings, bias, labels, fixed, shard.first, compute_dtype
                )
            )

        return self._each(of)

    def top_k(
        self, features: tf.Tensor, k: int | tf.Tensor, absolute: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        def of(shard: ClassShard) -> tuple[tf.Tensor, tf.Tensor]:
            most = shard.matrix.num_classes
            some = tf.minimum(k, most) if tf.is_tensor(k) else min(k, most)
            scores, ids = shard.matrix.top_k(features, some, absolute)
            return scores, ids + shard.first

        scores, ids = (tf.concat(all_, axis=1) for all_ in zip(*self._each(of), strict=True))
        # Of equal ones `top_k` puts the first first, here the lower id.
        ranked = tf.where(scores > _NOTHING, scores, _NOTHING)
        places = tf.math.top_k(ranked, k).indices
        return tf.gather(scores, places, batch_dims=1), tf.gather(ids, places, batch_dims=1)

    def fold_logits(
        self,
        features: tf.Tensor,
        function: Callable[[Any, tf.Tensor, tf.Tensor], Any],
        state: Any,
        width: int | tf.Tensor = 1,
        classes: tf.Tensor | None = None,
    ) -> Any:
        """As `ClassMatrix.fold_logits`, where the rows are: the state goes from shard to shard.

        `classes` must rise.
        """
        for shard in self._shards:
            own = None
            if classes is not None:
                own = tf.boolean_mask(classes, shard.contains(classes)) - shard.first
            shifted = functools.partial(_shifted, function, shard.first)
            with shard.place():
                state = shard.matrix.fold_logits(features, shifted, state, width, own)
        return state

    def each_replica(self, function: Callable[[], Any]) -> None:
        function()

    def on_rows_changed(self, function: Callable[[tf.Tensor, tf.Tensor], None]) -> NoReturn:
        """Nobody follows the rows of several variables: a ValueError."""
        self.variables()

    def _each(self, function: Callable[[ClassShard], Any]) -> list[Any]:
        found = []
        for shard in self._shards:
            with shard.place():
                found.append(function(shard))
        return found

    def _checked(self, ids: tf.Tensor) -> tf.Tensor:
        """`ids`, none of which is too high; the first shard's ops see which are too low."""
        highest = tf.reduce_max(tf.pad(tf.reshape(ids, [-1]), [[0, 1]], constant_values=-1))
        expected = f"Classes of layer '{self._owner}' must be below {self.num_classes}, but got"
        check = tf.debugging.Assert(highest < self.num_classes, [expected, highest])
        with tf.control_dependencies([] if check is None else [check]):
            return tf.identity(ids)


def _shifted(
    function: Callable[[Any, tf.Tensor, tf.Tensor], Any],
    first: int,
    state: Any,
    logits: tf.Tensor,
    ids: tf.Tensor,
) -> Any:
    return function(state, logits, ids + first)


def _variable(values: tf.Tensor, name: str) -> tf.Variable:
    return tf.Variable(values, trainable=False, name=name)
