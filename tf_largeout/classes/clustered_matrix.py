"""`ClusteredMatrix`: classes in clusters, whose scores are log-probabilities."""

import functools
from collections.abc import Callable
from typing import Any, NoReturn

import keras
import tensorflow as tf

from tf_largeout.classes import blockwise
from tf_largeout.classes.class_matrix import ClassMatrix, ClassStatistics
from tf_largeout.variables.replicas import local_variable


class ClusteredMatrix(ClassMatrix):
    """Classes whose score is the log-probability of a softmax in two levels.

        log P(c | h) = log softmax_k(<u_k, h> + a_k) at the cluster k of c
                     + log softmax_j(<w_j, h> + b_j) at c, over the classes j of cluster k

    The rows that it gives are the `w_c`; wherever a `ClassMatrix` gives logits, it gives
    log-probabilities, which nothing ranks by their absolute values: a ValueError. What it says
    of a few classes per row of the batch (`dots`, `class_log_probabilities`) costs
    O(num_clusters + size of their clusters); what it says of all (`statistics`, `top_k`)
    O(num_classes), in blocks of classes, with memory for `[batch, num_clusters + block]`.

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

    def as_products(self) -> None:
        """None: what a score takes off depends on all classes of the cluster."""
        return None

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
        of_clusters = self.clusters.statistics(features, clusters)
        log_clusters = of_clusters.true_logits - of_clusters.log_partition[:, tf.newaxis]
        # A row of its own for each class that is there: padding would cost a cluster each.
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
        """Log-probabilities and ranks of classes among those of their clusters.

        Args:
            features: Float `[n, dim]`.
            ids: int64 `[n]`, a class for each row.
            clusters: int64 `[n]`, its cluster.

        Returns:
            float32 and int64 `[n]`.
        """
        members, ids = self._members_of(clusters), ids[:, tf.newaxis]
        logits = super().dots(features, tf.concat([ids, members], axis=1))
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
        """As `ClassMatrix.statistics`, of log-probabilities, in two passes over the classes.

        The `log_partition` is 0, for their probabilities sum to 1.

        Raises:
            ValueError: If `compute_dtype` is not "float32": only passes over all classes take
                another.
        """
        if compute_dtype != "float32":
            raise ValueError(
                f"Layer '{self._owner}' computes in float32: its training steps multiply few "
                f"classes. Received: compute_dtype={compute_dtype!r}. Leave it out of the loss."
            )
        true_logits = tf.where(labels >= 0, self.dots(features, labels), 0)
        features, width = tf.stop_gradient(features), tf.shape(labels)[1]
        shifts, own = self._first_pass(features, labels, width)
        # From the numbers that the second pass compares it with: equal ones are equal.
        clusters = tf.gather(local_variable(self._cluster_of_class), tf.maximum(labels, 0))
        own += tf.gather(tf.transpose(shifts), clusters, batch_dims=1)
        fold = functools.partial(self._second_pass, features, shifts, width=width)
        ranks = blockwise.ranks(fold, labels, own, self.num_classes)
        return ClassStatistics(tf.zeros(tf.shape(labels)[:1]), true_logits, ranks)

    def top_k(
        self, features: tf.Tensor, k: int, absolute: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The `k` classes with the highest log-probabilities, exactly, as `ClassMatrix.top_k`.

        Args:
            features: float32 `[B, dim]`, finite.
            k: Between 1 and `num_classes`.
            absolute: False.

        Raises:
            ValueError: If `absolute` is true.
        """
        if absolute:
            self._absolute_fold(features)
        features = tf.debugging.check_numerics(features, "The features must be finite")
        fold = functools.partial(self.fold_logits, features)
        return blockwise.top_k(fold, tf.shape(features)[0], k)

    def fold_logits(
        self,
        features: tf.Tensor,
        function: Callable[[Any, tf.Tensor, tf.Tensor], Any],
        state: Any,
        width: int | tf.Tensor = 1,
        classes: tf.Tensor | None = None,
    ) -> Any:
        """As `ClassMatrix.fold_logits`, of log-probabilities, which take a pass before it."""
        no_labels = tf.zeros([tf.shape(features)[0], 0], tf.int64)
        shifts, _ = self._first_pass(features, no_labels, width)
        return self._second_pass(features, shifts, function, state, width, classes)

    def _first_pass(
        self, features: tf.Tensor, labels: tf.Tensor, width: int | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """What turns logits into log-probabilities, and the logits of the labels.

        Returns:
            `(shifts, true_logits)`: float32 `[num_clusters, B]`, what is added to the logits
            of the classes of each cluster; and float32 `[B, L]`.
        """
        batch = tf.shape(features)[0]
        # An empty batch gets a row of zeros: TensorFlow scatters nothing into an empty tensor.
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
        highest, total, true_logits = super().fold_logits(features, add, nothing, width)
        log_partitions = highest + tf.math.log(total)
        shifts = self._log_cluster_probabilities(features) - log_partitions
        return shifts[:, :batch], true_logits[:batch]

    def _second_pass(
        self,
        features: tf.Tensor,
        shifts: tf.Tensor,
        function: Callable[[Any, tf.Tensor, tf.Tensor], Any],
        state: Any,
        width: int | tf.Tensor,
        classes: tf.Tensor | None = None,
    ) -> Any:
        """`fold_logits`, given the `shifts` of `_first_pass`."""
        cluster_of_class = local_variable(self._cluster_of_class)

        def shifted(state: Any, logits: tf.Tensor, ids: tf.Tensor) -> Any:
            of_each = tf.gather(shifts, tf.gather(cluster_of_class, ids))
            return function(state, logits + tf.transpose(of_each), ids)

        return super().fold_logits(features, shifted, state, width, classes)

    def _absolute_fold(
        self,
        features: tf.Tensor,
        width: int | tf.Tensor = 1,
        classes: tf.Tensor | None = None,
    ) -> NoReturn:
        raise ValueError(
            f"Layer '{self._owner}' gives log-probabilities, which are never above 0: by their "
            "absolute values the least likely class would come first. Received: absolute=True. "
            "Leave `absolute` out for a `HierarchicalOutput`."
        )

    def _log_cluster_probabilities(self, features: tf.Tensor) -> tf.Tensor:
        """float32 `[num_clusters, B]`, of features `[B, dim]`."""
        logits = tf.cast(self.clusters.logits(features), tf.float32)
        return tf.transpose(tf.nn.log_softmax(logits))

    def _members_of(self, clusters: tf.Tensor) -> tf.Tensor:
        """The classes of some clusters.

        Args:
            clusters: int64 `[n]`.

        Returns:
            int64 `[n, size of the largest]`, padded with -1.
        """
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
    """Highest logit, and sum of `exp(logit - highest)`, of each cluster that is there.

    Args:
        logits: float32 `[B, n]`.
        clusters: int64 `[n]`.

    Returns:
        `(seen, highest, sums)`: int64 `[m]`, the clusters; and float32 `[m, B]`.
    """
    order = tf.argsort(clusters, stable=True)  # segments in order are summed far faster
    seen, segments = tf.unique(tf.gather(clusters, order))
    logits = tf.gather(tf.transpose(logits), order)
    highest = tf.math.segment_max(logits, segments)
    sums = tf.math.segment_sum(tf.exp(logits - tf.gather(highest, segments)), segments)
    return seen, highest, sums
