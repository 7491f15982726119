"""`ClusteredMatrix`: classes in clusters, whose scores are log-probabilities."""

import functools
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.classes import blockwise
from tf_largeout.classes.blockwise import BlockFunction
from tf_largeout.classes.class_scorer import ClassMatrix, ClassScorer, ClassStatistics
from tf_largeout.variables.replicas import local_variable


class LogProbabilityScorer(ClassScorer):
    """Classes that are scored by log-probabilities, which are cheap to compute for a few."""

    scores_are_products = False

    def class_log_probabilities(
        self, features: tf.Tensor, classes: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns the exact log-probabilities of each example's own classes, with gradients.

        Args:
            features: Float `[B, dim]`.
            classes: int64 `[B, L]`, padded with -1.

        Returns:
            float32 `[B, L]`, any value at padding; and int64 `[B, L]`, ranks of the classes in
            their clusters, or None.
        """
        raise self._missing("class_log_probabilities")


class ClusteredMatrix(LogProbabilityScorer):
    """Classes whose score is the log-probability of a two-level softmax.

        log P(c | h) = log softmax_k(<u_k, h> + a_k) at the cluster k of c
                     + log softmax_j(<w_j, h> + b_j) at c, over the classes j of cluster k

    Its rows are the `w_c`, and its logits are these log-probabilities. Scoring a few classes
    per example (`dots`, `class_log_probabilities`) takes O(num_clusters + size of their
    clusters) time. Scoring all classes (`statistics`, `top_k`) takes O(num_classes) time, in
    blocks of classes, with memory for `[batch, num_clusters + block]` numbers.

    Args:
        embeddings, bias: Keras variables of the `w_c` and `b_c`, or None.
        clusters: The `ClassMatrix` of the `u_k` and `a_k`.
        cluster_of_class: int64 Keras variable `[num_classes]`.
        members: int64 Keras variable `[num_classes]`, the classes sorted by cluster, then id.
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
        num_classes, dim = embeddings.shape
        super().__init__(num_classes, dim, bias is not None, owner)
        self._matrix, self.clusters = ClassMatrix(embeddings, bias, owner), clusters
        self._cluster_of_class = cluster_of_class
        self._members, self._offsets = members, offsets

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        return self._matrix.rows(ids)

    def values(self) -> tf.Tensor:
        return self._matrix.values()

    def logits(self, features: tf.Tensor) -> tf.Tensor:
        logits = self._matrix.logits(features)
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
        return self.class_log_probabilities(features, ids)[0]

    def class_log_probabilities(
        self, features: tf.Tensor, ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns log-probabilities of classes `[B, n]`, and ranks in their clusters.

        The ranks are int64, and `num_classes` at padding; lower ids win ties. The gradient of
        the embeddings has one row per class of those clusters.
        """
        present = ids >= 0
        cluster_of_class = local_variable(self._cluster_of_class)
        clusters = tf.where(present, tf.gather(cluster_of_class, tf.maximum(ids, 0)), -1)
        of_clusters = self.clusters.statistics(features, clusters)
        log_clusters = of_clusters.true_logits - of_clusters.log_partition[:, tf.newaxis]
        # One row per class, without padding: a padding id would take as much time as a class.
        places = tf.where(present)
        log_inside, ranks = self._inside_clusters(
            tf.gather(features, places[:, 0]),
            tf.gather_nd(ids, places),
            tf.gather_nd(clusters, places),
        )
        shape = tf.shape(ids, tf.int64)
        log_inside = tf.scatter_nd(places, log_inside, shape)
        absent = tf.fill(shape, tf.constant(self.num_classes, tf.int64))
        return (
            tf.where(present, log_clusters + log_inside, tf.float32.min),
            tf.tensor_scatter_nd_update(absent, places, ranks),
        )

    def _inside_clusters(
        self, features: tf.Tensor, ids: tf.Tensor, clusters: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns log-probabilities and ranks `[n]` of classes `[n]` within their clusters.

        `features` are `[n, dim]`, one row per class.
        """
        members, ids = self._members_of(clusters), ids[:, tf.newaxis]
        logits = self._matrix.dots(features, tf.concat([ids, members], axis=1))
        own, others = logits[:, :1], logits[:, 1:]
        higher = blockwise.scores_higher(others, members, own, ids) & (members >= 0)
        return own[:, 0] - tf.reduce_logsumexp(others, axis=1), blockwise.count(higher)

    def statistics(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        compute_dtype: str = "float32",
        training: bool = False,
    ) -> ClassStatistics:
        """Like `ClassScorer.statistics`, in two passes over the classes.

        The `log_partition` is 0, because the probabilities sum to 1.
        """
        self._require_float32(compute_dtype)
        true_logits = tf.where(labels >= 0, self.dots(features, labels), 0)
        features, width = tf.stop_gradient(features), tf.shape(labels)[1]
        shifts, own = self._first_pass(features, labels, width)
        # The same computation as in the second pass, so that equal scores compare equal.
        clusters = tf.gather(local_variable(self._cluster_of_class), tf.maximum(labels, 0))
        own += tf.gather(tf.transpose(shifts), clusters, batch_dims=1)
        fold = functools.partial(self._second_pass, features, shifts, width=width)
        ranks = blockwise.ranks(fold, labels, own, self.num_classes)
        return ClassStatistics(tf.zeros(tf.shape(labels)[:1]), true_logits, ranks)

    def fold_logits(
        self, features: tf.Tensor, function: BlockFunction, state: Any, **options: Any
    ) -> Any:
        """Like `ClassScorer.fold_logits`, after another pass over all classes."""
        no_labels = tf.zeros([tf.shape(features)[0], 0], tf.int64)
        shifts, _ = self._first_pass(features, no_labels, options.get("width", 1))
        return self._second_pass(features, shifts, function, state, **options)

    def _first_pass(
        self, features: tf.Tensor, labels: tf.Tensor, width: int | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns shifts from logits to log-probabilities, and the logits of the labels.

        The shifts, `[num_clusters, B]`, are for the logits of the classes of each cluster.
        """
        batch = tf.shape(features)[0]
        # An empty batch gets one example: TensorFlow cannot scatter into an empty tensor.
        padding = [[0, tf.cast(tf.equal(batch, 0), tf.int32)], [0, 0]]
        features = tf.pad(tf.cast(features, tf.float32), padding)
        labels = tf.pad(labels, padding, constant_values=-1)
        size = [self.clusters.num_classes, tf.shape(features)[0]]
        cluster_of_class = local_variable(self._cluster_of_class)

        def add(state: Any, logits: tf.Tensor, ids: tf.Tensor) -> Any:
            highest, total, true_logits = state
            seen, of_block, sums = _segment_sums(logits, tf.gather(cluster_of_class, ids))
            before = tf.gather(highest, seen)
            new = tf.maximum(before, of_block)
            sums *= tf.exp(of_block - new)
            sums += tf.gather(total, seen) * tf.exp(before - new)
            seen = seen[:, tf.newaxis]
            highest = tf.tensor_scatter_nd_update(highest, seen, new)
            total = tf.tensor_scatter_nd_update(total, seen, sums)
            return highest, total, blockwise.at_labels(logits, ids, labels, true_logits)

        nothing = tf.fill(size, tf.float32.min), tf.zeros(size), tf.zeros(tf.shape(labels))
        fold = self._matrix.fold_logits
        highest, total, true_logits = fold(features, add, nothing, width=width)
        log_partitions = highest + tf.math.log(total)
        shifts = self._log_cluster_probabilities(features) - log_partitions
        return shifts[:, :batch], true_logits[:batch]

    def _second_pass(
        self,
        features: tf.Tensor,
        shifts: tf.Tensor,
        function: BlockFunction,
        state: Any,
        **options: Any,
    ) -> Any:
        """Returns `fold_logits`, given the `shifts` of `_first_pass`."""
        cluster_of_class = local_variable(self._cluster_of_class)

        def shifted(state: Any, logits: tf.Tensor, ids: tf.Tensor) -> Any:
            of_each = tf.gather(shifts, tf.gather(cluster_of_class, ids))
            return function(state, logits + tf.transpose(of_each), ids)

        return self._matrix.fold_logits(features, shifted, state, **options)

    def _log_cluster_probabilities(self, features: tf.Tensor) -> tf.Tensor:
        """Returns float32 `[num_clusters, B]`, of features `[B, dim]`."""
        logits = tf.cast(self.clusters.logits(features), tf.float32)
        return tf.transpose(tf.nn.log_softmax(logits))

    def _members_of(self, clusters: tf.Tensor) -> tf.Tensor:
        """Returns the classes of clusters `[n]`, `[n, size of the largest]`, padded with -1."""
        offsets = local_variable(self._offsets)
        first = tf.gather(offsets, clusters)[:, tf.newaxis]
        sizes = tf.gather(offsets, clusters + 1)[:, tf.newaxis] - first
        places = tf.range(tf.maximum(tf.reduce_max(sizes), 0))
        there = places < sizes
        ids = tf.gather(local_variable(self._members), tf.where(there, first + places, 0))
        return tf.where(there, ids, -1)


def _segment_sums(
    logits: tf.Tensor, clusters: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the highest logit and the sum of `exp(logit - highest)` of each cluster.

    They are `[m, B]`, after the clusters that occur, int64 `[m]`; `clusters` is `[n]`.
    """
    order = tf.argsort(clusters, stable=True)  # TensorFlow sums sorted segments far faster
    seen, segments = tf.unique(tf.gather(clusters, order))
    logits = tf.gather(tf.transpose(logits), order)
    highest = tf.math.segment_max(logits, segments)
    sums = tf.math.segment_sum(tf.exp(logits - tf.gather(highest, segments)), segments)
    return seen, highest, sums
