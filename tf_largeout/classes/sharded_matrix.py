"""`ShardedMatrix`: classes whose rows are in several variables, on one or more machines."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.classes.best_scores import NOTHING, highest
from tf_largeout.classes.blockwise import BlockFunction
from tf_largeout.classes.class_matrix import (
    ClassMatrix,
    statistics_by,
    statistics_in_blocks,
)
from tf_largeout.classes.class_scorer import ClassScorer, new_products
from tf_largeout.classes.class_shard import ClassShard
from tf_largeout.classes.class_statistics import ClassStatistics
from tf_largeout.ops import class_scan_ops
from tf_largeout.types import Elementwise
from tf_largeout.variables.row_shard import map_by_shard, split


class ShardedMatrix(ClassScorer):
    """Classes whose rows are divided into ranges, with one variable per range.

    Ops on the device of each shard compute its part of every result. The parts are then
    combined: log partitions by a logsumexp, ranks by a sum, the best classes by their order. So
    only ids, features, scores and the rows that are used move between devices, never the
    matrix, except in `values` and `as_products`.

    Logits of given classes, ranks and `top_k` are bit-identical to those of a single matrix.
    The same holds for the gradients of a sampled loss with one label per example. Sums over all
    classes, and sums over classes of one example in different shards, are computed in another
    order, so their last bits can differ. The last bits of the scores of `fold_logits`,
    `top_k_of` and `absolute()` can also differ: `tf.matmul` computes these scores, and its last
    bits depend on the number of classes in a call.

    Args:
        embeddings: Keras variables `[n_i, dim]`, in the order of the classes.
        biases: Keras variables `[n_i]` on the same devices, or None.
        owner: Name of the layer, for messages.
        matrix_class: `ClassMatrix`, or `NormalizedMatrix` to score normalized rows.
    """

    def __init__(
        self,
        embeddings: Sequence[keras.Variable],
        biases: Sequence[keras.Variable] | None,
        owner: str,
        matrix_class: type[ClassMatrix] = ClassMatrix,
    ) -> None:
        firsts = [0, *itertools.accumulate(rows.shape[0] for rows in embeddings)]
        super().__init__(firsts[-1], embeddings[0].shape[1], biases is not None, owner)
        self._biases = list(biases or [])
        self.has_unit_rows = matrix_class.has_unit_rows
        self._shards: list[ClassShard] = []
        for number, rows in enumerate(embeddings):
            matrix = matrix_class(rows, biases[number] if biases else None, owner)
            shard = ClassShard(
                matrix=matrix,
                first=firsts[number],
                num_rows=matrix.num_classes,
                number=number,
                num_shards=len(embeddings),
                device_anchor=rows,
            )
            self._shards.append(shard)
        self.is_rounded = self._shards[0].matrix.is_rounded
        self._has_own_pass = all(shard.matrix.has_own_pass() for shard in self._shards)

    def shards(self) -> list[ClassShard]:
        return self._shards

    def as_products(self) -> tuple[tf.Variable, tf.Variable | None]:
        """Like `ClassScorer.as_products`: new variables on this machine, for all shards."""
        biases = [bias.value for bias in self._biases]
        return new_products(self.values(), tf.concat(biases, axis=0) if biases else None)

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
        """See `ClassMatrix.dots_and_rows`."""
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
        """Like `ClassScorer.statistics`, in one pass over each shard.

        In training, one pass computes log partitions and logits, with one gradient. If ranks
        are used, another pass computes them. Outside training, the logits of the labels are
        computed first, bit-identical to those of the pass. So one pass can also rank the
        labels.
        """
        features, labels = tf.cast(features, tf.float32), self._checked(labels)
        if not self._has_own_pass or (training and self.has_unit_rows):
            return statistics_in_blocks(self, features, labels, compute_dtype, training)
        if self.has_unit_rows:
            self._require_float32(compute_dtype)
            return statistics_by(
                lambda features: self._pass(features, labels), self, features, labels
            )

        def of_own(shard: ClassShard) -> ClassStatistics:
            return shard.matrix.statistics(features, shard.to_local(labels), compute_dtype)

        if not training:
            return ClassStatistics(*self._pass(features, labels, compute_dtype))
        own = self._each(of_own)
        true_logits = tf.add_n([one.true_logits for one in own])
        log_partitions = [one.log_partition for one in own]
        found = self._scan(tf.stop_gradient(features), labels, true_logits, compute_dtype)
        return ClassStatistics(
            tf.reduce_logsumexp(tf.stack(log_partitions), axis=0),
            true_logits,
            tf.add_n([one.ranks for one in found]),
        )

    def _pass(
        self, features: tf.Tensor, labels: tf.Tensor, compute_dtype: str = "float32"
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the arguments of `ClassStatistics`, by one pass over each shard."""
        true_logits = self.ranked_scores(features, labels, compute_dtype)
        found = self._scan(features, labels, true_logits, compute_dtype)
        log_partitions = [one.log_partition for one in found]
        return (
            tf.reduce_logsumexp(tf.stack(log_partitions), axis=0),
            true_logits,
            tf.add_n([one.ranks for one in found]),
        )

    def ranked_scores(
        self, features: tf.Tensor, ids: tf.Tensor, compute_dtype: str = "float32"
    ) -> tf.Tensor:
        """See `ClassMatrix.ranked_scores`."""
        if not self._has_own_pass:
            return ClassScorer.ranked_scores(self, tf.cast(features, tf.float32), ids)

        def own_scores(shard: ClassShard) -> tf.Tensor:
            return shard.matrix.ranked_scores(features, shard.to_local(ids), compute_dtype)

        return tf.add_n(self._each(own_scores))

    def exact_scores(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        function: Elementwise = tf.identity,
        others_only: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        def of(shard: ClassShard) -> tuple[tf.Tensor, tf.Tensor]:
            own = shard.to_local(labels)
            return shard.matrix.exact_scores(features, own, function, others_only)

        log_partitions, scores = zip(*self._each(of), strict=True)
        return tf.reduce_logsumexp(tf.stack(log_partitions), axis=0), tf.add_n(list(scores))

    def _scan(
        self, features: tf.Tensor, labels: tf.Tensor, true_logits: tf.Tensor, compute_dtype: str
    ) -> list[ClassStatistics]:
        """Returns the statistics over each shard. The labels may be in other shards."""
        fixed = tf.stop_gradient(true_logits)

        def of(shard: ClassShard) -> ClassStatistics:
            embeddings, bias = shard.matrix.variables()
            return ClassStatistics(
                *class_scan_ops.class_statistics(
                    features,
                    embeddings,
                    bias,
                    labels,
                    fixed,
                    shard.first,
                    compute_dtype,
                    self.has_unit_rows,
                )
            )

        return self._each(of)

    def sum_over_classes(
        self, features: tf.Tensor, function: Elementwise, training: bool = False
    ) -> tf.Tensor:
        def of(shard: ClassShard) -> tf.Tensor:
            return shard.matrix.sum_over_classes(features, function, training)

        return tf.add_n(self._each(of))

    def mean_logits(self, features: tf.Tensor, training: bool = False) -> tf.Tensor:
        def of(shard: ClassShard) -> tf.Tensor:
            share = shard.matrix.num_classes / self.num_classes
            return share * shard.matrix.mean_logits(features, training)

        return tf.add_n(self._each(of))

    def top_k(self, features: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def of(shard: ClassShard) -> tuple[tf.Tensor, tf.Tensor]:
            most = shard.matrix.num_classes
            some = tf.minimum(k, most) if tf.is_tensor(k) else min(k, most)
            scores, ids = shard.matrix.top_k(features, some)
            return scores, ids + shard.first

        scores, ids = (tf.concat(all_, axis=1) for all_ in zip(*self._each(of), strict=True))
        # NaN ranks last, as in one matrix.
        return highest(scores, ids, k, keys=tf.where(scores > NOTHING, scores, NOTHING))

    def fold_logits(
        self, features: tf.Tensor, function: BlockFunction, state: Any, **options: Any
    ) -> Any:
        """Like `ClassScorer.fold_logits`, on the devices of the rows, shard by shard."""
        classes = options.pop("classes", None)

        def fold(shard: ClassShard, state: Any) -> Any:
            def shifted(state: Any, logits: tf.Tensor, ids: tf.Tensor) -> Any:
                return function(state, logits, ids + shard.first)

            own = None
            if classes is not None:
                own = tf.boolean_mask(classes, shard.contains(classes)) - shard.first
            matrix = shard.matrix
            with shard.place():
                return matrix.fold_logits(features, shifted, state, classes=own, **options)

        for shard in self._shards:
            state = fold(shard, state)
        return state

    def _each(self, function: Callable[[ClassShard], Any]) -> list[Any]:
        found = []
        for shard in self._shards:
            with shard.place():
                found.append(function(shard))
        return found

    def _checked(self, ids: tf.Tensor) -> tf.Tensor:
        """Checks that no id is too high. The ops of the first shard reject ids below -1."""
        highest = tf.reduce_max(tf.pad(tf.reshape(ids, [-1]), [[0, 1]], constant_values=-1))
        expected = f"Classes of layer '{self._owner}' must be below {self.num_classes}, but got"
        check = checks.require(highest < self.num_classes, [expected, highest])
        return checks.passed([check], ids)
