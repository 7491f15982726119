"""Draws from the lists of an inverted file, with their exact probabilities."""

import tensorflow as tf


class RowDistribution:
    """The probability of each row for each query.

    It is the probability of the row's list, divided by the number of rows in the list.

    For query h, list l has probability `softmax_l(<m_l, h> + b_l + log(size_l))`, where m_l and
    b_l approximate the means of the rows and the biases of the list. All rows of a list are
    equally likely. If the rows of each list were equal, this would be the softmax over all
    rows. If no list has a finite score (before the first fit, or for queries that overflow),
    all rows are equally likely. The probabilities are exact even if the rows have changed since
    they were assigned to lists. All methods cost O(num_lists) per query.

    Args:
        queries: float32 `[batch, dim]`.
        means: float32 variable `[num_lists, dim]`.
        mean_bias: float32 variable `[num_lists]`.
        offsets: uint32 variable `[num_lists + 1]`; the members of list l are
            `ids[offsets[l]:offsets[l + 1]]`.
        ids: uint32 variable `[num_rows]`, each row once; not read where the lists are empty.
        list_of_row: uint32 variable `[num_rows]`, or None.

    References:
        Chen et al. 2025, "Adaptive sampled softmax with inverted multi-index: methods, theory
        and applications" (arXiv 2501.08563): the same from lists of product quantization.
    """

    def __init__(
        self,
        queries: tf.Tensor,
        means: tf.Variable,
        mean_bias: tf.Variable,
        offsets: tf.Variable,
        ids: tf.Variable,
        list_of_row: tf.Variable | None,
    ) -> None:
        self._ids, self._list_of_row = ids, list_of_row
        self._offsets = tf.cast(offsets.read_value(), tf.int64)
        self._sizes = self._offsets[1:] - self._offsets[:-1]
        scores = tf.matmul(queries, means, transpose_b=True) + mean_bias
        usable = tf.math.is_finite(scores) & (self._sizes > 0)
        scores += tf.math.log(tf.cast(tf.maximum(self._sizes, 1), tf.float32))
        self._has_lists = tf.reduce_any(usable, axis=1, keepdims=True)
        self._scores = tf.where(usable, scores, tf.float32.min)
        list_probabilities = tf.nn.softmax(self._scores)
        self._list_probabilities = tf.where(usable, list_probabilities, 0)

    def log_mass(self) -> tf.Tensor:
        """Returns the log of the softmax's denominator, float32 `[batch]`; -inf without lists.

        Use it to join the distributions of several shards of the rows.
        """
        mass = tf.reduce_logsumexp(self._scores, axis=1)
        return tf.where(self._has_lists[:, 0], mass, -float("inf"))

    def draw(self, num_draws: int, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Draws rows for each query, independently, with replacement.

        Args:
            num_draws: Number of rows per query.
            seed: int64 `[2]`; equal seeds give equal draws.

        Returns:
            `(ids, probabilities)`: int64 and float32 `[batch, num_draws]`.
        """
        shape = [2, tf.shape(self._has_lists)[0], num_draws]
        # In 64 bits, because float32 is too coarse for lists of small probability.
        of_list, of_member = tf.unstack(
            tf.random.stateless_uniform(shape, seed, dtype=tf.float64, alg="philox")
        )
        cumulative = tf.cumsum(tf.cast(self._list_probabilities, tf.float64), axis=1)
        lists = tf.searchsorted(cumulative, of_list * cumulative[:, -1:], side="right")
        lists = tf.minimum(lists, tf.shape(cumulative)[1] - 1)  # where there are no lists
        places = tf.gather(self._offsets, lists) + _scaled(
            of_member, tf.gather(self._sizes, lists)
        )
        ids = tf.cast(tf.gather(self._ids, places), tf.int64)
        any_row = _scaled(of_member, tf.fill([1, 1], tf.cast(self._ids.shape[0], tf.int64)))
        return tf.where(self._has_lists, ids, any_row), self._of_members(lists)

    def probabilities(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the probability of each of some rows in one draw.

        Args:
            ids: int64 `[batch, n]` in `[0, num_rows)`.

        Returns:
            float32 `[batch, n]`.
        """
        return self._of_members(tf.cast(tf.gather(self._list_of_row, ids), tf.int32))

    def _of_members(self, lists: tf.Tensor) -> tf.Tensor:
        """Returns the probability of one member of each of `lists`, int32 `[batch, n]`."""
        sizes = tf.cast(tf.gather(self._sizes, lists), tf.float32)
        probabilities = tf.gather(self._list_probabilities, lists, batch_dims=1)
        return tf.where(
            self._has_lists,
            tf.math.divide_no_nan(probabilities, sizes),
            1 / self._ids.shape[0],
        )


def _scaled(uniform: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    """Scales numbers in [0, 1) to int64 in [0, size)."""
    return tf.cast(uniform * tf.cast(sizes, tf.float64), tf.int64)
