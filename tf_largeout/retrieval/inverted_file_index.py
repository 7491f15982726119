"""`InvertedFileIndex`: finds most of the best classes in O(sqrt(num_classes)) time."""

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_largeout.arguments import whole_number
from tf_largeout.classes.best_scores import best_left
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.retrieval.index import Answer, MeasuredIndex, Search, lowest_of_best
from tf_largeout.retrieval.rows import Rows, best_of, weight_maker
from tf_largeout.search.inverted_file import InvertedFile

MEASURED_K = (1, 10, 100)
_QUERIES_AT_A_TIME = 64
_MANY_LISTS = 100
_TIMES_AS_MANY = 4  # lists in the next attempt
# 8-bit scores select `_TIMES_K * k + _MORE` classes, which are then scored in float32.
_TIMES_K, _MORE = 2, 16
# On average, the searched lists have at least this number of members per result.
_MEMBERS_FOR_EACH = 8
_ROWS_AT_A_TIME = 2**13  # compared with all lists


class ClassLists(NamedTuple):
    """Lists of classes, and how many of them to search.

    Attributes:
        means: float32 `[num_lists, dim]`: a query searches the lists with the highest
            `<mean, query> + mean_bias`.
        mean_bias: float32 `[num_lists]`.
        members: int32 `[num_lists, longest]`, ids of classes, padded with -1.
        num_probes: How many lists a query searches.
        probes_of_k: How many lists a query for `k` classes searches, for some values of `k`. A
            larger `k` uses `num_probes`. None uses `num_probes` for every `k`.
    """

    means: np.ndarray
    mean_bias: np.ndarray
    members: np.ndarray
    num_probes: int
    probes_of_k: dict[int, int] | None = None


class InvertedFileIndex(MeasuredIndex["ListedRows"]):
    """Finds most of the `k` classes with the highest `<w_c, query> + b_c`, scoring only a few.

    Spherical k-means assigns the classes to lists. A query is compared with the mean row of
    each list, and then with the members of the best lists, with 8 bits per number. The best of
    these members are scored again in float32. If more lists are searched, recall is higher, and
    a search takes longer.

    `build` measures how many lists a query must search to find the share `recall_target` of the
    best 1, 10 and 100 classes of sample queries. A query for `k` classes uses the number for
    the next higher of these; above 100, the number grows in proportion. With all lists or with
    `allowed`, a result is exact. A query searches more lists if its lists have too few classes,
    or if it excludes many. Its result does not depend on the other queries of the batch.

    For some class rows, such as random ones, the best classes of a query are spread over very
    many lists. `build` then warns, because a `BruteForceIndex` is as fast.

    In addition to the rows, the index uses about `dim + 12` bytes per class. Changed and added
    classes are put into the nearest lists, and the means of the lists do not change. So build
    the index again when most classes have changed.

    Args:
        recall_target: In (0, 1], by default 0.95. With 1, a query searches all lists if a
            sample query needs them.
        num_probes: How many lists a query searches. None, the default, chooses the number by
            `recall_target`. The search is exact if this equals the number of lists.
        num_lists: Number of lists; None, the default, for `4 sqrt(num_classes)`.

    Raises:
        ValueError: If an argument is out of range.

    References:
        Sivic and Zisserman 2003, "Video Google"; Jegou, Douze, Schmid 2011, "Product
        quantization for nearest neighbor search", section IV.
    """

    def __init__(
        self,
        recall_target: float = 0.95,
        num_probes: int | None = None,
        num_lists: int | None = None,
    ) -> None:
        super().__init__(recall_target, measures=num_probes is None)
        self._num_probes = whole_number("num_probes", num_probes, or_none=True)
        self._num_lists = whole_number("num_lists", num_lists, or_none=True)
        if num_probes is not None and num_lists is not None and num_probes > num_lists:
            raise ValueError(
                "`num_probes` must be at most `num_lists`, the number of lists. Received: "
                f"num_probes={num_probes}, num_lists={num_lists}. With num_probes={num_lists}, "
                "a query searches all lists."
            )

    def _fitted(self, rows: Rows) -> "ListedRows":
        file = _new_file(rows, self._num_lists, {})
        file.fit(*rows.matrix.variables())
        return ListedRows(rows, file, {1: self._num_probes or 1})

    def _measure(self, search: "ListedRows", queries: tf.Tensor, are_rows: bool) -> None:
        """The first numbers are estimates from the lists of the exact results.

        Real searches correct them: they order lists by 8-bit means, and may miss a few classes.
        A class that scores as the last of the best `k` counts as found.
        """
        target, num_lists = self.recall_target, search.num_lists
        sizes = sorted({min(k, search.rows.matrix.num_classes) for k in MEASURED_K})
        scores, ids = (one.numpy() for one in search.rows.top_k(queries, sizes[-1]))
        needed = _needed(search, queries.numpy(), ids)
        numbers = {
            k: _least_of(search, queries, scores[:, :k], needed[:, :k], target) for k in sizes
        }
        if are_rows:  # the best class is usually the row itself, which is too easy
            numbers[1] = max(numbers.values())
        search.probes_of_k = numbers
        k = min(max(numbers), 10)
        if target < 1 and num_lists >= _MANY_LISTS and 2 * numbers[k] > num_lists:
            warnings.warn(
                f"To find {target:.0%} of the best {k} classes, an InvertedFileIndex of these "
                f"rows must search {numbers[k]} of {num_lists} lists. Use a BruteForceIndex: "
                "it is exact and takes about as long.",
                stacklevel=3,
            )

    @property
    def num_probes(self) -> int:
        """How many lists a query searches. If `build` chose it, the number for 10 classes."""
        probes_of_k = self._built().probes_of_k
        return probes_of_k.get(10, max(probes_of_k.values()))

    @property
    def num_lists(self) -> int:
        """Number of lists."""
        return self._built().num_lists

    def lists(self) -> ClassLists:
        """Returns the lists without removed classes, split into pieces of at most mean length.

        A query searches so many pieces that they have as many members as `num_probes` lists.
        """
        search = self._built()
        means, mean_bias, list_of_row = search.file.lists()
        ids = np.flatnonzero(search.rows.alive)
        ids = ids[np.argsort(list_of_row[ids], kind="stable")]
        sizes = np.bincount(list_of_row[ids], minlength=search.num_lists)
        length = max(1, math.ceil(len(ids) / search.num_lists))
        counts = -(-sizes // length)
        whole = zip(np.split(ids, np.cumsum(sizes)[:-1]), counts, strict=True)
        cut = [part for one, count in whole if count for part in np.array_split(one, count)]
        list_of_piece = np.repeat(np.arange(search.num_lists), counts)
        members = np.full([len(cut), length], -1, np.int32)
        for row, part in zip(members, cut, strict=True):
            row[: len(part)] = part
        pieces_of_list = len(cut) / search.num_lists
        numbers = {k: math.ceil(n * pieces_of_list) for k, n in search.probes_of_k.items()}
        return ClassLists(
            means.numpy()[list_of_piece],
            mean_bias.numpy()[list_of_piece],
            members,
            max(numbers.values()),
            numbers,
        )

    def variables(self) -> list[tf.Variable]:
        """Returns the variables that `best_of` reads in addition to the class rows."""
        return self._built().file.variables()

    def best_of(
        self,
        scorer: ClassScorer,
        queries: tf.Tensor,
        k: int | tf.Tensor,
        exclude: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Like `Search.find` for any `k`, with scores by `scorer`, which has the same rows."""
        search = self._built()

        def best_of(up_to: int) -> Callable[[], Answer]:
            arguments = scorer, queries, k, search.probes(up_to), exclude
            return functools.partial(search.best_of_lists, *arguments)

        if isinstance(k, int):
            return best_of(k)()
        largest, *smaller = sorted(search.probes_of_k, reverse=True)
        answer = best_of(largest)
        for most in smaller:
            answer = functools.partial(tf.cond, k <= most, best_of(most), answer)
        return answer()

    def _settings(self) -> dict[str, Any]:
        return {
            "probes_of_k": sorted(self._built().probes_of_k.items()),
            "recall_target": self.recall_target,
        }

    def _restore(self, settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> "ListedRows":
        self.recall_target = settings["recall_target"]
        state = {name: array for name, array in arrays.items() if name in InvertedFile.PARTS}
        rows = Rows.of_arrays(arrays)
        file = _new_file(rows, len(state["means"]), state)
        return ListedRows(rows, file, dict(settings["probes_of_k"]))


class ListedRows(Search):
    """Class rows, and an inverted file of them; `probes_of_k` is as in `ClassLists`."""

    def __init__(self, rows: Rows, file: InvertedFile, probes_of_k: dict[int, int]) -> None:
        super().__init__(rows)
        self.file, self.probes_of_k = file, probes_of_k
        self.num_lists = len(file.list_sizes())

    def arrays(self) -> dict[str, np.ndarray]:
        return {**self.rows.arrays(), **self.file.arrays()}

    def with_rows(self, rows: Rows, changed: np.ndarray) -> "ListedRows":
        means, mean_bias, list_of_row = self.file.lists()
        num_new = len(rows.alive) - len(list_of_row)
        list_of_row = np.concatenate([list_of_row, np.zeros(num_new, np.int64)])
        there = changed[rows.alive[changed]]
        directions = tf.math.l2_normalize(means, axis=1)
        for first in range(0, len(there), _ROWS_AT_A_TIME):
            some = there[first : first + _ROWS_AT_A_TIME]
            cosines = tf.matmul(rows.matrix.rows(some), directions, transpose_b=True)
            list_of_row[some] = tf.argmax(cosines, axis=1).numpy()
        file = _new_file(rows, len(means), {})
        file.deal(*rows.matrix.variables(), means, mean_bias, list_of_row)
        return ListedRows(rows, file, self.probes_of_k)

    def scores_all(self, k: int) -> bool:
        return self.probes(k) >= self.num_lists

    def find(self, queries: tf.Tensor, k: int, exclude: tf.Tensor | None) -> Answer:
        return self.best_of_lists(self.rows.matrix, queries, k, self.probes(k), exclude)

    def probes(self, k: int) -> int:
        """Returns how many lists to search for `k` classes."""
        measured = [other for other in self.probes_of_k if other >= k]
        if measured:
            return self.probes_of_k[min(measured)]
        mean_size = self.rows.matrix.num_classes / self.num_lists
        enough = math.ceil(_MEMBERS_FOR_EACH * k / mean_size)
        return max(enough, *self.probes_of_k.values())

    def best_of_lists(
        self,
        scorer: ClassScorer,
        queries: tf.Tensor,
        k: int | tf.Tensor,
        num_probes: int,
        exclude: tf.Tensor | None = None,
    ) -> Answer:
        """Like `find`, with `scorer` and another number of lists, and a `k` of at least 0.

        8-bit scores choose candidates, which `scorer` scores again.
        """
        count = tf.maximum(tf.minimum(_TIMES_K * k + _MORE, scorer.num_classes), k)

        def candidates(
            queries: tf.Tensor, exclude: tf.Tensor | None, num_probes: int
        ) -> tuple[tf.Tensor]:
            if exclude is None:
                return (self.file.search(queries, count, num_probes)[1],)
            found = self.file.search(queries, count + tf.shape(exclude)[1], num_probes)
            return (best_left(*found, exclude, count)[1],)

        numbers = [min(num_probes, self.num_lists)]
        while numbers[-1] < self.num_lists:
            numbers.append(min(_TIMES_AS_MANY * numbers[-1], self.num_lists))
        mean_size = scorer.num_classes / self.num_lists
        (ids,) = search_until_full(candidates, queries, exclude, numbers, mean_size)
        return best_of(scorer, queries, ids, k)


def _new_file(rows: Rows, num_lists: int | None, values: dict[str, np.ndarray]) -> InvertedFile:
    """Creates an inverted file for `rows`, unfitted, or with `values` of its parts."""
    file = InvertedFile(num_lists)
    file.build(rows.matrix.num_classes, rows.matrix.dim, weight_maker(values))
    return file


def search_until_full(
    search: Callable[[tf.Tensor, tf.Tensor | None, Any], tuple[tf.Tensor, ...]],
    queries: tf.Tensor,
    exclude: tf.Tensor | None,
    numbers: Sequence[int | tf.Tensor],
    mean_size: float,
) -> tuple[tf.Tensor, ...]:
    """Returns the results of `search`, with as many lists per query as it needs.

    A query searches the next of `numbers` of lists if its lists have too few classes, or might
    have too few because of its exclusions. So no result depends on other queries. `search` is a
    function of queries, their exclusions and a number of lists. It returns tensors `[B, m]`,
    the last of which has ids, padded with -1. `mean_size` is the mean size of a list.
    """
    found = search(queries, exclude, numbers[0])
    if len(numbers) == 1:
        return found
    ids = found[-1]
    is_short = tf.reduce_any(ids < 0, axis=1)
    if exclude is not None:
        excluded = tf.math.count_nonzero(exclude >= 0, axis=1, dtype=tf.int32)
        members = tf.cast(numbers[0], tf.float32) * mean_size
        too_few = tf.cast(excluded + tf.shape(ids)[1], tf.float32) > members
        is_short |= (excluded > 0) & too_few
    short = tf.where(is_short)

    def search_more() -> tuple[tf.Tensor, ...]:
        some = None if exclude is None else tf.gather_nd(exclude, short)
        more = search_until_full(
            search, tf.gather_nd(queries, short), some, numbers[1:], mean_size
        )
        pairs = zip(found, more, strict=True)
        return tuple(tf.tensor_scatter_nd_update(one, short, other) for one, other in pairs)

    return tf.cond(tf.size(short) > 0, search_more, lambda: found)


def _least_of(
    searched: ListedRows,
    queries: tf.Tensor,
    scores: np.ndarray,
    needed: np.ndarray,
    target: float,
) -> int:
    """Returns the least number of lists for one `k`, from `scores` and `needed` of the best."""
    k, last = scores.shape[1], math.ceil(target * scores.size - 1e-6) - 1
    lowest = lowest_of_best(scores)

    def is_enough(number: int) -> bool:
        found, _ = searched.best_of_lists(searched.rows.matrix, queries, k, number)
        return bool((found.numpy() >= lowest).mean() >= target)

    most = searched.num_lists
    number = min(int(np.partition(needed.ravel(), last)[last]), most)
    if number == most or is_enough(number):
        while number > 1 and is_enough(number - 1):
            number -= 1
        return number
    while number < most and not is_enough(number):
        number += 1 + number // 50
    return min(number, most)


def _needed(searched: ListedRows, queries: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Returns how many lists a query must search to find each of its classes `ids`, `[n, k]`.

    A search of P lists stops before the list at place r if r is P, or if the lists before it
    have as many members as P lists of mean size.
    """
    means, mean_bias, list_of_class = searched.file.lists()
    sizes = np.bincount(list_of_class, minlength=searched.num_lists)
    mean_size = math.ceil(sizes.mean())
    needed = np.empty(ids.shape, np.int64)
    for first in range(0, len(queries), _QUERIES_AT_A_TIME):
        part = slice(first, first + _QUERIES_AT_A_TIME)
        scores = queries[part] @ means.numpy().T + mean_bias.numpy()
        order = np.argsort(-scores, axis=1, kind="stable")
        place = np.empty_like(order)
        np.put_along_axis(place, order, np.arange(len(sizes))[np.newaxis], axis=1)
        before = np.cumsum(sizes[order], axis=1) - sizes[order]
        places = np.take_along_axis(place, list_of_class[ids[part]], axis=1)
        members = np.take_along_axis(before, places, axis=1)
        needed[part] = 1 + np.maximum(places, members // mean_size)
    return needed
