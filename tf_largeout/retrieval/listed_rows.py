"""Class rows in lists: the search of `InvertedFileIndex`."""

import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.classes.best_scores import best_left
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.classes.filtered_top_k import exclusions
from tf_largeout.retrieval.more_lists import numbers_of_lists, search_until_full
from tf_largeout.retrieval.rows import Rows, best_of, weight_maker
from tf_largeout.search.inverted_file import InvertedFile
from tf_largeout.types import TensorLike

Answer = tuple[tf.Tensor, tf.Tensor]

# 8-bit scores select `_TIMES_K * k + _MORE` classes, which are then scored in float32.
_TIMES_K, _MORE = 2, 16
# On average, the searched lists have at least this number of members per result.
_MEMBERS_FOR_EACH = 8
_ROWS_AT_A_TIME = 2**13  # compared with all lists


class Lists(NamedTuple):
    """Lists of classes.

    Attributes:
        means: float32 `[num_lists, dim]`: a query searches the lists with the highest
            `<mean, query> + mean_bias`.
        mean_bias: float32 `[num_lists]`.
        list_of_class: int `[num_classes]`.
        sizes: int `[num_lists]`, the number of members of each list.
    """

    means: np.ndarray
    mean_bias: np.ndarray
    list_of_class: np.ndarray
    sizes: np.ndarray


class ListedRows:
    """Class rows, and an inverted file of them.

    Args:
        rows: The class rows.
        file: Lists of them.
        probes_of_k: How many lists a query for `k` classes searches, for some values of `k`.

    Attributes:
        rows, file, probes_of_k: As above.
        num_lists: Number of lists.
    """

    def __init__(self, rows: Rows, file: InvertedFile, probes_of_k: dict[int, int]) -> None:
        self.rows, self.file, self.probes_of_k = rows, file, probes_of_k
        self.num_lists: int = file.health()["num_lists"]

    @classmethod
    def fitted(
        cls, rows: Rows, num_lists: int | None, probes_of_k: dict[int, int]
    ) -> "ListedRows":
        """Assigns the rows to lists by k-means.

        Args:
            rows: The class rows.
            num_lists: Number of lists; None for about `4 sqrt(num_classes)`.
            probes_of_k: As above.
        """
        file = _new_file(rows, num_lists, {})
        file.fit(*rows.matrix.variables())
        return cls(rows, file, probes_of_k)

    @classmethod
    def of_arrays(
        cls, arrays: dict[str, np.ndarray], probes_of_k: dict[int, int]
    ) -> "ListedRows":
        """Restores rows and lists from the result of `arrays`, without a copy."""
        state = {name: array for name, array in arrays.items() if name in InvertedFile.PARTS}
        rows = Rows.of_arrays(arrays)
        return cls(rows, _new_file(rows, len(state["means"]), state), probes_of_k)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the arrays of rows and lists, by name, without `probes_of_k`."""
        return {**self.rows.arrays(), **self.file.arrays()}

    def with_rows(self, rows: Rows, changed: np.ndarray) -> "ListedRows":
        """Returns a search over `rows`; assigns those in `changed`, int64 `[n]`, to lists."""
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

    def top_k(
        self,
        queries: tf.Tensor,
        k: int,
        exclude: TensorLike | None = None,
        allowed: TensorLike | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Like `Index.top_k`. If it would search all lists, it scores all classes."""
        if exclude is not None:
            exclude = exclusions(exclude, queries, self.rows.matrix.num_classes)
        probes = self.probes(k)
        if allowed is not None or probes >= self.num_lists:
            return self.rows.top_k(queries, k, exclude, allowed)
        queries = checks.finite(queries, "The queries must be finite")
        found = self.best_of_lists(self.rows.matrix, queries, k, probes, exclude)
        return self.rows.found_or_exact(found, queries, k, exclude)

    def probes(self, k: int) -> int:
        """Returns how many lists to search for `k` classes."""
        measured = [other for other in self.probes_of_k if other >= k]
        if measured:
            return self.probes_of_k[min(measured)]
        mean_size = self.rows.matrix.num_classes / self.num_lists
        enough = math.ceil(_MEMBERS_FOR_EACH * k / mean_size)
        return max(enough, *self.probes_of_k.values())

    def exact(self, queries: tf.Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns scores and ids `[B, k]` of the best classes."""
        scores, ids = self.rows.top_k(queries, k)
        return scores.numpy(), ids.numpy()

    def found(self, queries: tf.Tensor, k: int, num_probes: int) -> np.ndarray:
        """Returns the scores `[B, k]` of the classes found in `num_probes` lists."""
        return self.best_of_lists(self.rows.matrix, queries, k, num_probes)[0].numpy()

    def lists(self) -> Lists:
        """Returns the lists; removed classes count as members."""
        means, mean_bias, list_of_class = self.file.lists()
        sizes = np.bincount(list_of_class, minlength=self.num_lists)
        return Lists(means.numpy(), mean_bias.numpy(), list_of_class, sizes)

    def best_of_lists(
        self,
        scorer: ClassScorer,
        queries: tf.Tensor,
        k: int | tf.Tensor,
        num_probes: int,
        exclude: tf.Tensor | None = None,
    ) -> Answer:
        """Returns the best classes of the best lists, chosen by 8-bit scores and scored again.

        Each result depends only on its query and its exclusions. A query searches more lists if
        its lists have too few classes left, or no more members than it excludes.

        Args:
            scorer: Scores the classes.
            queries: float32 `[B, dim]`, finite.
            k: At least 0.
            num_probes: Number of lists to search.
            exclude: int64 `[B, n]`, padded with negative ids; or None.

        Returns:
            `(scores, ids)`: float32 and int64 `[B, k]`, best first, padded with -inf and -1.
        """
        count = tf.maximum(tf.minimum(_TIMES_K * k + _MORE, scorer.num_classes), k)

        def candidates(
            queries: tf.Tensor, exclude: tf.Tensor | None, num_probes: int
        ) -> tuple[tf.Tensor]:
            if exclude is None:
                return (self.file.search(queries, count, num_probes)[1],)
            found = self.file.search(queries, count + tf.shape(exclude)[1], num_probes)
            return (best_left(*found, exclude, count)[1],)

        numbers = numbers_of_lists(num_probes, self.num_lists)
        mean_size = scorer.num_classes / self.num_lists
        (ids,) = search_until_full(candidates, queries, exclude, numbers, mean_size)
        return best_of(scorer, queries, ids, k)


def _new_file(rows: Rows, num_lists: int | None, values: dict[str, np.ndarray]) -> InvertedFile:
    """Creates an inverted file for `rows`, unfitted, or with `values` of its parts."""
    file = InvertedFile(num_lists)
    file.build(rows.matrix.num_classes, rows.matrix.dim, weight_maker(values))
    return file
