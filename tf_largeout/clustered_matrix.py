"""`ClusteredMatrix`: classes in clusters, whose scores are log-probabilities."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.class_matrix import ClassMatrix, ClassStatistics
from tf_largeout.replicas import local_variable

# Classes that are scored at a time: fewer where many labels are compared with each score.
_MOST_IN_BLOCK, _LEAST_IN_BLOCK = 8192, 256
_COMPARED_AT_ONCE = 2**22
# What a block does to the state of a pass: of the state, the id of its first class, the
# clusters [n] of its classes and their logits [n, B] in these.
_Fold = Callable[[Any, tf.Tensor, tf.Tensor, tf.Tensor], Any]


class ClusteredMatrix(ClassMatrix):
    """Classes whose score is the log-probability of a softmax in two levels.

        log P(c | h) = log softmax_k(<u_k, h> + a_k) at the cluster k of c
                     + log softmax_j(<w_j, h> + b_j) at c, over the classes j of cluster k

    The rows that it gives are the `w_c`. What it says of a few classes per row of the batch
    (`dots`, `class_log_probabilities`) costs O(num_clusters + size of their clusters); what it
    says of all (`statistics`, `top_k`) O(num_classes), in blocks of classes, with memory for
    `[batch, num_clusters + block]`.

    Args:
        embeddings: Keras variable `[num_classes, dim]`, the `w_c`.
        bias: Keras variable `[num_classes]`, the `b_c`, or None.
        clusters: The `ClassMatrix` of the `u_k` and `a_k`.
        cluster_of_class: int64 Keras variable `[num_classes]`.
        members: int64 Keras variable `[num_classes]`, the classes by cluster, ids rising in
            each.
        offsets: int64 Keras variable `[num_clusters + 1]`; cluster k has the classes
            `members[offsets[k]:offsets[k + 1]]`, at least one.
        owner: Name of the layer, for messages.
    """

    def __init__(
        self,
        embeddings: keras.Variable,
        bias: keras.Variable | None,
        clusters: ClassMatrix,
        cluster_of_class: keras.Variable,
        members: keras.Variable,
        offsets: keras.Variable,
        owner: str,
    ) -> None:
        super().__init__(embeddings, bias, owner)
        self.clusters = clusters
        self._cluster_of_class = cluster_of_class
        self._members, self._offsets = members, offsets

    def logits(self, features: tf.Tensor) -> tf.Tensor:
        """The log-probabilities of all classes, as `ClassMatrix.logits` gives logits."""
        logits = super().logits(features)
        columns = tf.transpose(tf.reshape(tf.cast(logits, tf.float32), [-1, self.num_classes]))
        of, count = self._cluster_of_class.value, self.clusters.num_classes
        highest = tf.stop_gradient(tf.math.unsorted_segment_max(columns, of, count))
        terms = tf.exp(columns - tf.gather(highest, of))
        total = tf.math.unsorted_segment_sum(terms, of, count)
        rows = tf.reshape(features, [-1, self.dim])
        shifts = self._log_cluster_probabilities(rows) - highest - tf.math.log(total)
        columns += tf.gather(shifts, of)
        found = tf.reshape(tf.transpose(columns), tf.shape(logits))
        return tf.cast(tf.ensure_shape(found, logits.shape), features.dtype)

    def dots(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """The log-probabilities of classes of each row's own, as `ClassMatrix.dots`."""
        return self.class_log_probabilities(features, ids)[0]

    def class_log_probabilities(
        self, features: tf.Tensor, ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Log-probabilities of classes of each row's own, and their ranks in their clusters.

        The gradient of the embeddings has a row for each class of those clusters.

        Args:
            features: Float `[B, dim]`.
            ids: int64 `[B, n]`, padded with -1.

        Returns:
            `(log_probabilities, ranks)`: float32 `[B, n]`, the lowest float at padding; and
            int64 `[B, n]`, how many classes of the cluster score higher (of equal ones, those
            with a lower id), `num_classes` at padding.
        """
        present = ids >= 0
        cluster_of_class = local_variable(self._cluster_of_class)
        clusters = tf.where(present, tf.gather(cluster_of_class, tf.maximum(ids, 0)), -1)
        members = self._members_of(clusters)
        batch, width = tf.shape(ids)[0], tf.shape(ids)[1]
        places = tf.reshape(members, [batch, width * tf.shape(members)[2]])
        logits = super().dots(features, tf.concat([ids, places], axis=1))
        own, others = logits[:, :width], tf.reshape(logits[:, width:], tf.shape(members))
        of_clusters = self.clusters.statistics(features, clusters)
        log_probabilities = own - tf.reduce_logsumexp(others, axis=2)
        log_probabilities += of_clusters.true_logits - of_clusters.log_partition[:, tf.newaxis]
        higher = _scores_higher(others, members, own[:, :, tf.newaxis], ids[:, :, tf.newaxis])
        return (
            tf.where(present, log_probabilities, tf.float32.min),
            tf.where(present, _count(higher, axis=2), self.num_classes),
        )

    def statistics(self, features: tf.Tensor, labels: tf.Tensor) -> ClassStatistics:
        """The exact `ClassStatistics` of the log-probabilities, in two passes over the classes.

        Args:
            features: Float `[B, dim]`.
            labels: int64 `[B, L]`, padded with -1.

        Returns:
            `ClassStatistics`: a `log_partition` of 0, for their probabilities sum to 1.
        """
        true_logits = tf.where(labels >= 0, self.dots(features, labels), 0)
        log_partition = tf.zeros(tf.shape(labels)[:1])
        features = tf.stop_gradient(tf.cast(features, tf.float32))
        return ClassStatistics(log_partition, true_logits, self._ranks(features, labels))

    def top_k(self, features: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        """The `k` classes with the highest log-probabilities, exactly, as `ClassMatrix.top_k`.

        Args:
            features: float32 `[B, dim]`, finite.
            k: Between 1 and `num_classes`.
        """
        features = tf.debugging.check_numerics(features, "The features must be finite")
        batch = tf.shape(features)[0]
        no_labels = tf.zeros([batch, 0], tf.int64)
        shifts, _ = self._first_pass(features, no_labels)

        def keep_best(best: Any, first: tf.Tensor, of: tf.Tensor, logits: tf.Tensor) -> Any:
            scores = tf.transpose(logits + tf.gather(shifts, of))
            scores = tf.where(tf.math.is_nan(scores), -float("inf"), scores)
            # Ids rise from the best so far to the block: of equal ones the lower is kept, as
            # `top_k` keeps the one in front.
            ids = tf.tile(first + tf.range(tf.size(of, tf.int64))[tf.newaxis], [batch, 1])
            order = tf.argsort(best[1], axis=1)
            before = [tf.gather(one, order, batch_dims=1) for one in best]
            scores, ids = tf.concat([before[0], scores], 1), tf.concat([before[1], ids], 1)
            scores, places = tf.math.top_k(scores, tf.minimum(k, tf.shape(scores)[1]))
            return scores, tf.gather(ids, places, batch_dims=1)

        nothing = tf.zeros([batch, 0]), no_labels
        scores, ids = self._fold(features, no_labels, keep_best, nothing)
        return tf.ensure_shape(scores, [None, k]), tf.ensure_shape(ids, [None, k])

    def _ranks(self, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Ranks of the labels, as in `ClassStatistics`, of float32 features."""
        shifts, true_logits = self._first_pass(features, labels)
        clusters = tf.gather(local_variable(self._cluster_of_class), tf.maximum(labels, 0))
        # From the numbers that the second pass compares it with: equal ones are equal.
        own = true_logits + _at(shifts, clusters)

        def count(ranks: Any, first: tf.Tensor, of: tf.Tensor, logits: tf.Tensor) -> Any:
            scores = (logits + tf.gather(shifts, of))[:, :, tf.newaxis]
            ids = (first + tf.range(tf.size(of, tf.int64)))[:, tf.newaxis, tf.newaxis]
            higher = _scores_higher(scores, ids, own[tf.newaxis], labels[tf.newaxis])
            return ranks + _count(higher, axis=0)

        ranks = self._fold(features, labels, count, tf.zeros_like(labels))
        return tf.where((labels >= 0) & (own > -float("inf")), ranks, self.num_classes)

    def _first_pass(
        self, features: tf.Tensor, labels: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """What turns logits into log-probabilities, and the logits of the labels.

        Returns:
            `(shifts, true_logits)`: float32 `[num_clusters, B]`, what is added to the logits
            of the classes of each cluster; and float32 `[B, L]`.
        """
        size = [self.clusters.num_classes, tf.shape(features)[0]]

        def add(state: Any, first: tf.Tensor, of: tf.Tensor, logits: tf.Tensor) -> Any:
            highest, total, true_logits = state
            seen, of_block, sums = _segment_sums(logits, of)
            before = tf.gather(highest, seen)
            new = tf.maximum(before, of_block)
            sums *= tf.exp(of_block - new)
            sums += tf.gather(total, seen) * tf.exp(before - new)
            seen = seen[:, tf.newaxis]
            highest = tf.tensor_scatter_nd_update(highest, seen, new)
            total = tf.tensor_scatter_nd_update(total, seen, sums)
            place, end = labels - first, tf.size(of, tf.int64)
            here = (place >= 0) & (place < end)
            found = _at(logits, tf.clip_by_value(place, 0, end - 1))
            return highest, total, tf.where(here, found, true_logits)

        nothing = tf.fill(size, tf.float32.min), tf.zeros(size), tf.zeros(tf.shape(labels))
        highest, total, true_logits = self._fold(features, labels, add, nothing)
        log_partitions = highest + tf.math.log(total)
        return self._log_cluster_probabilities(features) - log_partitions, true_logits

    def _fold(self, features: tf.Tensor, labels: tf.Tensor, fold: _Fold, state: Any) -> Any:
        """The state after `fold` of each block of classes in turn.

        The blocks of equal features and labels are equal, and so are their logits.
        """
        embeddings, bias = self.variables()
        cluster_of_class = local_variable(self._cluster_of_class)
        compared = tf.maximum(tf.size(labels, tf.int64), 1)
        block = tf.clip_by_value(
            _COMPARED_AT_ONCE // compared,
            tf.constant(_LEAST_IN_BLOCK, tf.int64),
            tf.constant(_MOST_IN_BLOCK, tf.int64),
        )

        def step(first: tf.Tensor, state: Any) -> Any:
            ids = tf.range(first, tf.minimum(first + block, self.num_classes))
            logits = tf.matmul(tf.gather(embeddings, ids), features, transpose_b=True)
            if bias is not None:
                logits += tf.gather(bias, ids)[:, tf.newaxis]
            state = fold(state, first, tf.gather(cluster_of_class, ids), logits)
            return first + block, state

        return tf.while_loop(
            lambda first, _: first < self.num_classes,
            step,
            (tf.constant(0, tf.int64), state),
            shape_invariants=(tf.TensorShape([]), tf.nest.map_structure(_unknown, state)),
        )[1]

    def _log_cluster_probabilities(self, features: tf.Tensor) -> tf.Tensor:
        """float32 `[num_clusters, B]`, of features `[B, dim]`."""
        logits = tf.cast(self.clusters.logits(features), tf.float32)
        return tf.transpose(tf.nn.log_softmax(logits))

    def _members_of(self, clusters: tf.Tensor) -> tf.Tensor:
        """The classes of some clusters.

        Args:
            clusters: int64 `[B, n]`, -1 for none.

        Returns:
            int64 `[B, n, size of the largest]`, padded with -1.
        """
        offsets, some = local_variable(self._offsets), tf.maximum(clusters, 0)
        first = tf.gather(offsets, some)
        sizes = tf.where(clusters >= 0, tf.gather(offsets, some + 1) - first, 0)
        places = tf.range(tf.maximum(tf.reduce_max(sizes), 0))
        there = places < sizes[:, :, tf.newaxis]
        ids = tf.gather(
            local_variable(self._members),
            tf.where(there, first[:, :, tf.newaxis] + places, 0),
        )
        return tf.where(there, ids, -1)


def _segment_sums(
    logits: tf.Tensor, clusters: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Highest logit, and sum of `exp(logit - highest)`, of each cluster that is there.

    Args:
        logits: float32 `[n, B]`.
        clusters: int64 `[n]`.

    Returns:
        `(seen, highest, sums)`: int64 `[m]`, the clusters; and float32 `[m, B]`.
    """
    order = tf.argsort(clusters, stable=True)  # segments in order are summed far faster
    seen, segments = tf.unique(tf.gather(clusters, order))
    logits = tf.gather(logits, order)
    highest = tf.math.segment_max(logits, segments)
    sums = tf.math.segment_sum(tf.exp(logits - tf.gather(highest, segments)), segments)
    return seen, highest, sums


def _scores_higher(
    scores: tf.Tensor, ids: tf.Tensor, own_scores: tf.Tensor, own_ids: tf.Tensor
) -> tf.Tensor:
    """Whether classes score higher than others, of equal ones the lower id; -1 never does."""
    ties = (scores == own_scores) & (ids < own_ids)
    return (ids >= 0) & ((scores > own_scores) | ties)


def _count(bools: tf.Tensor, axis: int) -> tf.Tensor:
    """How many are true, int64; by floats, in which sums are far faster, exact to 2^24."""
    return tf.cast(tf.reduce_sum(tf.cast(bools, tf.float32), axis), tf.int64)


def _at(columns: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """`columns[places[b, l], b]` `[B, L]`, of `columns` `[n, B]`."""
    shape = tf.shape(places)
    rows = tf.broadcast_to(tf.range(shape[0])[:, tf.newaxis], shape)
    return tf.gather_nd(columns, tf.stack([tf.cast(places, tf.int32), rows], axis=-1))


def _unknown(tensor: tf.Tensor) -> tf.TensorShape:
    """A shape of the same rank, of unknown sizes."""
    return tf.TensorShape([None] * tensor.shape.rank)
