"""An inverted file in an export: a few lists of classes are scored, by stock operations."""

from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tf_largeout.retrieval import ClassLists
from tf_largeout.retrieval.more_lists import search_until_full
from tf_largeout.serving.class_scores import NOTHING, AllClasses, BlockedProducts, best_but


class ListIndex(Protocol):
    """What an export asks of an index, such as a `retrieval.InvertedFileIndex`."""

    def require_rows(self, matrix: Any) -> None:
        """Raises a ValueError unless the index is one of the classes of this class matrix."""

    def lists(self) -> ClassLists:
        """Lists of the classes, each class in one or in none; for the core export."""

    def best_of(
        self,
        matrix: Any,
        queries: tf.Tensor,
        k: int | tf.Tensor,
        exclude: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As `ClassScores.top_k`, of classes scored by `matrix`; for the custom export."""

    def variables(self) -> list[tf.Variable]:
        """What `best_of` reads beside those of the matrix."""


class IndexedClasses:
    """The classes that an index finds, by our ops.

    Args:
        matrix: Scores the classes.
        index: Finds them.
    """

    def __init__(self, matrix: Any, index: ListIndex) -> None:
        self._matrix, self._index = matrix, index

    def top_k(
        self, features: tf.Tensor, k: int | tf.Tensor, exclude: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As `ClassScores.top_k`."""
        return self._index.best_of(self._matrix, features, k, exclude)


class ListedProducts:
    """The classes of the best lists, scored exactly by their own rows.

    With a fixed `k` and no exclusions the graph has no loop, no branch and no ragged tensor:
    all lists are padded to one length, and so many are searched that any choice of them has `k`
    classes; or all classes are scored, where those would be the padded lists of a quarter of
    them. A query takes the memory of `num_probes * longest` rows. Otherwise a query searches
    more lists if its lists have too few classes.

    Args:
        embeddings: float32 variable `[num_classes, dim]`.
        bias: float32 variable `[num_classes]`, or None.
        lists: The lists. Classes in none are not found.

    Raises:
        ValueError: If they are not lists of these classes.
    """

    def __init__(
        self,
        embeddings: tf.Variable,
        bias: tf.Variable | None,
        lists: ClassLists,
    ) -> None:
        _check(lists, tuple(embeddings.shape))
        self._embeddings, self._bias = embeddings, _bias_of_listed(embeddings, bias, lists)
        self._means = tf.Variable(lists.means, trainable=False, dtype=tf.float32)
        self._mean_bias = tf.Variable(lists.mean_bias, trainable=False, dtype=tf.float32)
        self._members = tf.Variable(lists.members, trainable=False, dtype=tf.int32)
        numbers = dict(sorted((lists.probes_of_k or {}).items()))
        self._measured_k, most = [*numbers], len(lists.means)
        # The last is for more classes than any of the others.
        self._numbers = [min(one, most) for one in (*numbers.values(), lists.num_probes)]
        self._num_probes = max(self._numbers)
        self._sizes = np.sort((lists.members >= 0).sum(axis=1))
        self._all = AllClasses(BlockedProducts(embeddings, self._bias))

    def top_k(
        self, features: tf.Tensor, k: int | tf.Tensor, exclude: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """As `ClassScores.top_k`, of the classes of the best lists."""
        if isinstance(k, int) and exclude is None:
            with tf.init_scope():  # so that the graph has no branch
                num_probes = self._probes(k)
                are_many = bool(self._are_many(num_probes))
            if are_many:
                return self._all.top_k(features, k)
            return self._of_lists(features, k, int(num_probes))

        def search(
            features: tf.Tensor, exclude: tf.Tensor | None, num_probes: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.cond(
                self._are_many(num_probes),
                lambda: self._all.top_k(features, k, exclude),
                lambda: self._of_lists(features, k, num_probes, exclude),
            )

        numbers = [self._probes(k), tf.constant(len(self._sizes))]
        return search_until_full(search, features, exclude, numbers, self._sizes.mean())

    def _probes(self, k: int | tf.Tensor) -> tf.Tensor:
        """How many lists to search: any so many have `k` classes, if there are `k`."""
        in_shortest = tf.constant(np.cumsum(self._sizes), tf.int32)
        surely = 1 + tf.searchsorted(in_shortest, [tf.minimum(k, in_shortest[-1])])[0]
        place = tf.searchsorted(tf.constant(self._measured_k, tf.int32), [k])[0]
        return tf.maximum(surely, tf.gather(self._numbers, place))

    def _are_many(self, num_probes: tf.Tensor) -> tf.Tensor:
        """Whether to score all classes is less work than so many padded lists."""
        width = tf.cast(num_probes, tf.int64) * int(self._members.shape[1])
        return (num_probes > self._num_probes) & (4 * width > self._all.num_classes)

    def _of_lists(
        self,
        features: tf.Tensor,
        k: int | tf.Tensor,
        num_probes: int | tf.Tensor,
        exclude: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        of_lists = tf.matmul(features, self._means, transpose_b=True) + self._mean_bias
        lists = tf.math.top_k(of_lists, num_probes)[1]
        width = num_probes * int(self._members.shape[1])
        ids = tf.reshape(tf.gather(self._members, lists), [-1, width])
        places = tf.maximum(ids, 0)
        rows = tf.gather(self._embeddings, places)
        scores = tf.squeeze(tf.matmul(rows, features[:, :, tf.newaxis]), axis=2)
        if self._bias is not None:
            scores += tf.gather(self._bias, places)
        scores = tf.where(ids >= 0, scores, NOTHING)
        count = k if exclude is None else k + tf.shape(exclude)[1]
        found = min(count, width) if isinstance(count, int) else tf.minimum(count, width)
        scores, places = tf.math.top_k(scores, found)
        ids = tf.cast(tf.gather(ids, places, batch_dims=1), tf.int64)
        padding = [[0, 0], [0, count - found]]
        scores = tf.pad(scores, padding, constant_values=NOTHING)
        ids = tf.pad(ids, padding, constant_values=-1)
        if exclude is not None:
            scores, ids = best_but(scores, ids, exclude, k)
        return scores, tf.where(scores > NOTHING, ids, -1)


def _bias_of_listed(
    embeddings: tf.Variable, bias: tf.Variable | None, lists: ClassLists
) -> tf.Variable | None:
    """The biases, with -inf for classes that are in no list."""
    is_listed = np.zeros(embeddings.shape[0], bool)
    is_listed[lists.members[lists.members >= 0]] = True
    if is_listed.all():
        return bias
    value = np.float32(0) if bias is None else bias.numpy()
    return tf.Variable(np.where(is_listed, value, np.float32(NOTHING)), trainable=False)


def _check(lists: ClassLists, shape: tuple[int, int]) -> None:
    """Raises a ValueError where lists are not those of a matrix of this shape."""
    ids = np.sort(lists.members[lists.members >= 0])
    fits = lists.means.shape[1] == shape[1] and ids.size and ids[-1] < shape[0]
    if not fits or (np.diff(ids) == 0).any():
        raise ValueError(
            f"`index` must have classes of the layer, of rows {shape}, each in one list. "
            f"Received: lists of {ids.size} ids up to {ids.max(initial=-1)} for rows of width "
            f"{lists.means.shape[1]}. Build it from layer.class_embeddings() of this model."
        )
