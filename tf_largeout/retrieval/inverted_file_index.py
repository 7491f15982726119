"""`InvertedFileIndex`: finds most of the best classes in O(sqrt(num_classes)) time."""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tf_largeout.arguments import share, whole_number
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.retrieval.index import Index
from tf_largeout.retrieval.list_numbers import measure, warn_if_many
from tf_largeout.retrieval.listed_rows import ListedRows
from tf_largeout.retrieval.rows import Rows, rows_of
from tf_largeout.retrieval.sample_queries import noisy_rows, some_of
from tf_largeout.types import TensorLike


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


class InvertedFileIndex(Index[ListedRows]):
    """Finds most of the `k` classes with the highest `<w_c, query> + b_c`, scoring only a few.

    Spherical k-means assigns the classes to lists. A query is compared with the mean row of
    each list, and then with the members of the best lists, with 8 bits per number. The best of
    these members are scored again in float32. If more lists are searched, recall is higher, and
    a search takes longer.

    `build` measures how many lists a query must search to find the share `recall_target` of the
    best 1, 10 and 100 classes of sample queries. A query for `k` classes uses the number that
    was measured for the next higher of 1, 10 and 100. For `k` above 100, the number grows in
    proportion. If a query searches all lists, its result is exact. It is also exact with
    `allowed`, because each allowed class is scored. A query searches more lists if its lists
    have too few classes, or if it excludes many. Its result does not depend on the other
    queries of the batch.

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
        super().__init__()
        self.recall_target = share("recall_target", recall_target)
        self._num_probes = whole_number("num_probes", num_probes, or_none=True)
        self._num_lists = whole_number("num_lists", num_lists, or_none=True)
        if num_probes is not None and num_lists is not None and num_probes > num_lists:
            raise ValueError(
                "`num_probes` must be at most `num_lists`, the number of lists. Received: "
                f"num_probes={num_probes}, num_lists={num_lists}. With num_probes={num_lists}, "
                "a query searches all lists."
            )

    def build(
        self,
        class_embeddings: TensorLike,
        bias: TensorLike | None = None,
        queries: TensorLike | None = None,
    ) -> "InvertedFileIndex":
        """Sets the class rows to search; replaces those of an earlier `build`.

        It takes O(num_classes^1.5 dim) time.

        Args:
            class_embeddings: Float `[num_classes, dim]`, such as `layer.class_embeddings()`.
            bias: Float `[num_classes]`, or None.
            queries: Float `[n, dim]`, a few hundred typical queries, such as the inputs of the
                output layer for validation examples. `recall_target` is measured on 2,048 of
                them, drawn at random. None, the default, uses class rows with added noise of
                half their length. These are about as far from their best classes as typical
                queries. For a better estimate, pass your own queries.

        Returns:
            The index itself.

        Raises:
            ValueError: If their shapes are wrong, there are no rows or no queries, or a number
                is not finite.
        """
        rows = Rows.of(class_embeddings, bias)
        sample = None if queries is None else rows_of("queries", queries, rows.matrix.dim)
        if sample is not None and not len(sample):
            raise ValueError("`queries` must contain at least one query. Received: none.")
        search = ListedRows.fitted(rows, self._num_lists, {1: self._num_probes or 1})
        if self._num_probes is None:
            measured = noisy_rows(rows) if sample is None else some_of(sample)
            if len(measured):
                numbers = measure(search, measured, self.recall_target)
                if (
                    sample is None
                ):  # the best class is usually the row itself, which is too easy
                    numbers[1] = max(numbers.values())
                search.probes_of_k = numbers
                warn_if_many(search.probes_of_k, search.num_lists, self.recall_target)
        with self._changes:
            self._take(search)
        return self

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
        """Returns the best classes of the best lists, scored by `scorer`, with our ops.

        Args:
            scorer: Scores the classes; it has the rows of this index.
            queries: float32 `[B, dim]`, finite.
            k: At least 0.
            exclude: int64 `[B, n]`, padded with negative ids; or None.

        Returns:
            `(scores, ids)`: float32 and int64 `[B, k]`, best first, padded with -inf and -1.
        """
        search = self._built()

        def best_of(num_probes: int) -> tuple[tf.Tensor, tf.Tensor]:
            return search.best_of_lists(scorer, queries, k, num_probes, exclude)

        if isinstance(k, int):
            return best_of(search.probes(k))
        largest, *smaller = sorted(search.probes_of_k, reverse=True)
        answer = functools.partial(best_of, search.probes(largest))
        for most in smaller:
            best = functools.partial(best_of, search.probes(most))
            answer = functools.partial(tf.cond, k <= most, best, answer)
        return answer()

    def _search_after(self, search: ListedRows, rows: Rows, ids: np.ndarray) -> ListedRows:
        return search.with_rows(rows, ids)

    def _settings(self) -> dict[str, Any]:
        return {
            "probes_of_k": sorted(self._built().probes_of_k.items()),
            "recall_target": self.recall_target,
        }

    def _restore(self, settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> ListedRows:
        self.recall_target = settings["recall_target"]
        return ListedRows.of_arrays(arrays, dict(settings["probes_of_k"]))
