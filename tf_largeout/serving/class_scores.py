"""Finds the best classes in an export, by scoring all of them or those of some lists."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.classes.best_scores import NOTHING, best_left, highest, search_without
from tf_largeout.classes.class_scorer import ClassScorer, RowScorer
from tf_largeout.classes.probabilities import AllScores
from tf_largeout.classes.quantized_rows import packed_source, quantized_products
from tf_largeout.classes.row_sources import LogitForm
from tf_largeout.retrieval import ClassLists
from tf_largeout.retrieval.inverted_file_index import search_until_full

# It holds the scores of one block of classes: `[batch, 65536]` float32 are 16 MiB for a batch
# of 64. Each block adds some nodes to the graph, so there are at most 64 blocks.
_LEAST_BLOCK, _MOST_BLOCKS = 2**16, 64
# Slices that start at a multiple of this number of rows are aligned for any width. TensorFlow
# does not copy aligned slices.
_ALIGNED_ROWS = 16


class ClassScores(AllScores, Protocol):
    """Finds the best classes for an export, and computes sums over all classes."""

    def top_k(
        self, features: tf.Tensor, k: int | tf.Tensor, exclude: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the `k` classes with the highest scores that are not excluded.

        `features` are float32 `[B, dim]`, finite. `k` is at least 1 with `exclude`, int64 `[B,
        n]`, padded with negative ids. If fewer than `k` classes remain, the last scores are
        -inf and the last ids are -1.
        """


class AllClasses:
    """Searches all classes with the `top_k` of a scorer."""

    def __init__(self, scorer: "ClassScorer | BlockedProducts") -> None:
        self._scorer, self.num_classes = scorer, scorer.num_classes

    def top_k(
        self, features: tf.Tensor, k: int | tf.Tensor, exclude: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """See `ClassScores`."""
        if exclude is None:
            return self._scorer.top_k(features, k)
        search = functools.partial(self._scorer.top_k, features)
        return search_without(search, self.num_classes, exclude, k)

    def log_partitions(
        self, features: tf.Tensor, log_weight: Callable[[tf.Tensor], tf.Tensor] | None = None
    ) -> tf.Tensor:
        """See `ClassScores.log_partitions`."""
        return self._scorer.log_partitions(features, log_weight)


class BlockedProducts:
    """All classes, scored exactly by inner products in blocks, with core TensorFlow ops.

    The graph has no loop, so that converters for other runtimes support it. Each block waits
    for the previous block, so a query of B examples takes O(B * block) memory. One product with
    all classes would be slightly faster, and take O(B * num_classes). Int8 embeddings have
    `scales`, float32 `[num_classes]`, the factors of the rows.
    """

    def __init__(
        self,
        embeddings: tf.Variable,
        bias: tf.Variable | None,
        scales: tf.Variable | None = None,
        form: LogitForm | None = None,
        block: int | None = None,
    ) -> None:
        self._embeddings, self._bias, self._scales = embeddings, bias, scales
        self._form = form or LogitForm()
        self.num_classes = int(embeddings.shape[0])
        self._block = block or default_block(self.num_classes)

    def top_k(self, features: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Like `ClassScores.top_k` without exclusions; lower ids win ties."""

        def best(scores: tf.Tensor, first: int) -> tuple[tf.Tensor, tf.Tensor]:
            most = int(scores.shape[1])
            of_block = min(k, most) if isinstance(k, int) else tf.minimum(k, most)
            scores, places = tf.math.top_k(scores, of_block)
            return scores, tf.cast(places, tf.int64) + first

        found = self._of_blocks(features, best)
        scores, ids = found[0]
        if len(found) > 1:
            scores, ids = (tf.concat(parts, axis=1) for parts in zip(*found, strict=True))
            scores, ids = highest(scores, ids, k)
        return self._form.capped(scores), ids

    def log_partitions(
        self, features: tf.Tensor, log_weight: Callable[[tf.Tensor], tf.Tensor] | None = None
    ) -> tf.Tensor:
        """Like `ClassScores.log_partitions`, in another pass over the blocks."""

        def of_block(scores: tf.Tensor, first: int) -> tf.Tensor:
            scores = self._form.capped(scores)
            return _log_sum(scores if log_weight is None else log_weight(scores))

        return _log_sum(tf.stack(self._of_blocks(features, of_block), axis=1))

    def _of_blocks(
        self, features: tf.Tensor, function: Callable[[tf.Tensor, int], Any]
    ) -> list[Any]:
        """Returns `function(scores, first)` of each block, in turn; the scores have no cap."""
        form = dataclasses.replace(self._form, cap=None)
        embeddings = self._embeddings.read_value()
        bias = None if self._bias is None else self._bias.read_value()
        scales = None if self._scales is None else self._scales.read_value()
        found: list[Any] = []
        for first in range(0, self.num_classes, self._block):
            end = min(first + self._block, self.num_classes)
            queries = checks.passed(tf.nest.flatten(found[-1:])[:1], features)
            rows = tf.cast(embeddings[first:end], tf.float32)
            logits = tf.matmul(queries, rows, transpose_b=True)
            if scales is not None:
                logits *= scales[first:end]
            if bias is not None:
                logits += bias[first:end]
            found.append(function(tf.identity(form.scores(logits)), first))
        return found


class ServedIndex(Protocol):
    """What the custom export needs from an index, such as a `retrieval.LSHIndex`."""

    def require_rows(self, scorer: ClassScorer) -> None:
        """Raises a ValueError unless the index contains the classes of this `ClassScorer`."""

    def best_of(
        self,
        scorer: ClassScorer,
        queries: tf.Tensor,
        k: int | tf.Tensor,
        exclude: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Like `ClassScores.top_k`, with classes scored by `scorer`."""

    def variables(self) -> list[tf.Variable]:
        """Returns the variables that `best_of` reads in addition to those of the scorer."""


class ListIndex(ServedIndex, Protocol):
    """What both exports need from an index, such as a `retrieval.InvertedFileIndex`."""

    def lists(self) -> ClassLists:
        """Returns lists of the classes, for the core export. A class is in at most one list."""


class IndexedClasses(AllClasses):
    """The classes that an index finds, with the ops of this library."""

    def __init__(self, scorer: ClassScorer, index: ServedIndex) -> None:
        super().__init__(scorer)
        self._ranked, self._form, self._index = scorer.with_form(cap=None), scorer.form, index

    def top_k(
        self, features: tf.Tensor, k: int | tf.Tensor, exclude: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        scores, ids = self._index.best_of(self._ranked, features, k, exclude)
        return self._form.capped(scores), ids


class ListedProducts:
    """The classes of the best lists, scored exactly by their class rows.

    With a fixed `k` and no exclusions, the graph has no loop, no branch and no ragged tensor:
    even the shortest of the searched lists, padded to one length, have `k` classes. If they
    have more than a quarter of all classes, all classes are scored instead. With exclusions or
    a variable `k`, a query searches more lists if its lists have too few classes. Classes that
    are in no list are not found. Lists of other classes raise a ValueError.
    """

    def __init__(
        self,
        embeddings: tf.Variable,
        bias: tf.Variable | None,
        scales: tf.Variable | None,
        lists: ClassLists,
        form: LogitForm | None = None,
    ) -> None:
        _check(lists, tuple(embeddings.shape))
        self._embeddings, self._bias = embeddings, _bias_of_listed(embeddings, bias, lists)
        self._scales, self._form = scales, form or LogitForm()
        self._means = tf.Variable(lists.means, trainable=False, dtype=tf.float32)
        self._mean_bias = tf.Variable(lists.mean_bias, trainable=False, dtype=tf.float32)
        self._members = tf.Variable(lists.members, trainable=False, dtype=tf.int32)
        numbers = dict(sorted((lists.probes_of_k or {}).items()))
        self._measured_k, most = [*numbers], len(lists.means)
        # The last number is for a `k` above all the measured ones.
        self._numbers = [min(one, most) for one in (*numbers.values(), lists.num_probes)]
        self._num_probes = max(self._numbers)
        self._sizes = np.sort((lists.members >= 0).sum(axis=1))
        self._all = AllClasses(BlockedProducts(embeddings, self._bias, scales))
        self._with_unlisted = BlockedProducts(embeddings, bias, scales, self._form)

    def top_k(
        self, features: tf.Tensor, k: int | tf.Tensor, exclude: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Like `ClassScores.top_k`, for the classes of the best lists."""
        scores, ids = self._search(features, k, exclude)
        return self._form.capped(scores), ids

    def _search(
        self, features: tf.Tensor, k: int | tf.Tensor, exclude: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor]:
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

    def log_partitions(
        self, features: tf.Tensor, log_weight: Callable[[tf.Tensor], tf.Tensor] | None = None
    ) -> tf.Tensor:
        """Like `ClassScores.log_partitions`, also over classes that are in no list."""
        return self._with_unlisted.log_partitions(features, log_weight)

    def _probes(self, k: int | tf.Tensor) -> tf.Tensor:
        """Returns how many lists to search, so that even the shortest ones have `k` classes."""
        in_shortest = tf.constant(np.cumsum(self._sizes), tf.int32)
        surely = 1 + tf.searchsorted(in_shortest, [tf.minimum(k, in_shortest[-1])])[0]
        place = tf.searchsorted(tf.constant(self._measured_k, tf.int32), [k])[0]
        return tf.maximum(surely, tf.gather(self._numbers, place))

    def _are_many(self, num_probes: tf.Tensor) -> tf.Tensor:
        """Returns whether it is faster to score all classes than this number of lists."""
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
        rows = tf.cast(tf.gather(self._embeddings, places), tf.float32)
        scores = tf.squeeze(tf.matmul(rows, features[:, :, tf.newaxis]), axis=2)
        if self._scales is not None:
            scores *= tf.gather(self._scales, places)
        if self._bias is not None:
            scores += tf.gather(self._bias, places)
        scores = tf.where(ids >= 0, scores, NOTHING)
        count = k if exclude is None else k + tf.shape(exclude)[1]
        found = min(count, width) if isinstance(count, int) else tf.minimum(count, width)
        scores, ids = highest(scores, ids, found)
        scores, ids = best_left(scores, tf.cast(ids, tf.int64), exclude, k)
        return scores, tf.where(scores > NOTHING, ids, -1)


def indexed_classes(scorer: ClassScorer, index: Any, ops: str, quantize: bool) -> ClassScores:
    """Returns a search by a `ListIndex` for the ops "core", or a `ServedIndex` for "custom".

    It raises a ValueError if the index has other class rows, or if there is no such export.
    """
    scorer, form = scorer.frozen(), scorer.form
    rows = scorer.require_rows(f"index={index!r}", form.rank_by)
    if ops == "core" and hasattr(index, "best_of") and not hasattr(index, "lists"):
        raise ValueError(
            "`index` must be a retrieval.InvertedFileIndex for ops='core'. Received: a "
            f"{type(index).__name__}, whose search needs the ops of tf_largeout. Pass "
            "ops='custom' if the server has them, or build an InvertedFileIndex."
        )
    if not hasattr(index, "best_of" if ops == "custom" else "lists"):
        raise ValueError(
            "`index` must be a retrieval.InvertedFileIndex: other indexes have no lists to "
            f"export. Received: a {type(index).__name__}. Omit `index` for an export that "
            "scores all classes, exactly, as a BruteForceIndex does."
        )
    index.require_rows(scorer.with_form(cap=None))
    if ops == "core":
        embeddings, bias, scales = (
            quantized_products(rows) if quantize else (*rows.as_products(), None)
        )
        return ListedProducts(embeddings, bias, scales, index.lists(), form)
    return IndexedClasses(RowScorer(packed_source(rows), form) if quantize else scorer, index)


def _bias_of_listed(
    embeddings: tf.Variable, bias: tf.Variable | None, lists: ClassLists
) -> tf.Variable | None:
    """Returns the biases, with -inf for classes that are in no list."""
    is_listed = np.zeros(embeddings.shape[0], bool)
    is_listed[lists.members[lists.members >= 0]] = True
    if is_listed.all():
        return bias
    value = np.float32(0) if bias is None else bias.numpy()
    return tf.Variable(np.where(is_listed, value, np.float32(NOTHING)), trainable=False)


def _check(lists: ClassLists, shape: tuple[int, int]) -> None:
    """Raises a ValueError unless the lists fit embeddings of this shape."""
    ids = np.sort(lists.members[lists.members >= 0])
    fits = lists.means.shape[1] == shape[1] and ids.size and ids[-1] < shape[0]
    if not fits or (np.diff(ids) == 0).any():
        raise ValueError(
            f"`index` must have the classes of the layer, with embeddings of shape {shape}, "
            f"each only in one list. Received: lists of {ids.size} ids up to "
            f"{ids.max(initial=-1)}, of width {lists.means.shape[1]}. Build it from "
            "layer.class_embeddings() of this model."
        )


def exact_classes(scorer: ClassScorer, ops: str, quantize: bool) -> ClassScores:
    """Returns a search of all classes; a ValueError if `quantize` and there are no rows."""
    scorer, form = scorer.frozen(), scorer.form
    if quantize:
        rows = scorer.require_rows("embeddings_dtype='int8'")
        if ops == "custom":
            return AllClasses(RowScorer(packed_source(rows), form))
        return AllClasses(BlockedProducts(*quantized_products(rows), form=form))
    products = None if ops == "custom" else scorer.product_rows()
    if products is None or products.is_rounded:
        # In blocks, by core TensorFlow ops. Products would be a float32 copy of rounded rows.
        return AllClasses(scorer)
    return AllClasses(BlockedProducts(*products.as_products(), form=form))


def _log_sum(values: tf.Tensor) -> tf.Tensor:
    """Returns `log sum exp` of `[B, n]`, finite, `[B]`.

    `tf.reduce_logsumexp` also supports infinite values, by operations that LiteRT lacks.
    """
    highest = tf.reduce_max(values, axis=1, keepdims=True)
    return tf.math.log(tf.reduce_sum(tf.exp(values - highest), axis=1)) + highest[:, 0]


def default_block(num_classes: int) -> int:
    """Returns the number of classes that `BlockedProducts` scores at a time."""
    block = max(_LEAST_BLOCK, -(-num_classes // _MOST_BLOCKS))
    return -(-block // _ALIGNED_ROWS) * _ALIGNED_ROWS
