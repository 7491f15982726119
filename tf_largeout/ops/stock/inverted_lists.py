"""Fits and reassignments of the lists of an inverted file, on the host and in NumPy.

The steps are those of `custom_ops/core/inverted_file`; only the order of sums differs.
"""

from collections.abc import Iterator, Sequence

import numpy as np

Arrays = Sequence[np.ndarray]

GROUP_ROWS, CODES_TOGETHER, CODE_OF_ZERO = 16, 4, 128
MOST_OF_ROW, MOST_OF_QUERY = 127, 64
_ROUNDS = 6  # of k-means
_ROWS_FOR_EACH_LIST = 32  # of the sample for k-means
_MOST_TIMES_MEAN = 8  # the largest size of a list, as a multiple of the mean size
_ROWS_AT_ONCE = 2**14
_SCORES_AT_ONCE = 2**22
_LEAST_SQUARE = 1e-12  # shorter rows are multiplied by 1e6 where rows have length 1
_MOST_STEPS = 2**62


def mean_members(num_classes: int, num_lists: int) -> int:
    """Returns the mean size of a list, rounded up."""
    return -(-num_classes // num_lists)


def num_sampled(num_classes: int, num_lists: int) -> int:
    """Returns the number of rows from which k-means computes the lists."""
    return min(num_classes, _ROWS_FOR_EACH_LIST * num_lists)


def most_of_query(dim: int) -> int:
    """Returns the largest code of a query such that sums of products fit into 32 bits."""
    width = max(1, -(-dim // GROUP_ROWS) * GROUP_ROWS)
    most = (2**31 - 1) // ((CODE_OF_ZERO + MOST_OF_ROW) * width)
    return min(max(most, 1), MOST_OF_QUERY)


def quantized(rows: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns whole numbers of magnitude up to `most`, as floats, and the scale of each row.

    A row is about its numbers times its scale. The scale of a row that is not finite is NaN.
    """
    largest = np.maximum(rows.max(axis=1, initial=0), -rows.min(axis=1, initial=0))
    with np.errstate(all="ignore"):
        factor = np.float32(most) / largest
        usable = (factor > 0) & (factor < np.float32(1e30))
        numbers = rows * np.where(usable, factor, 0)[:, np.newaxis]
        scales = np.where(usable, largest / np.float32(most), largest * 0)
    np.rint(numbers, out=numbers)
    numbers[~usable] = 0
    return numbers, scales


class Lists:
    """The state of an inverted file while it is fitted to rows.

    Args:
        rows: `[num_classes, dim]`, float32 or bfloat16.
        bias: float32 `[num_classes]`, or None.
        state: The seven arrays of the file. They are not changed.
        unit_length: Whether the rows are scaled to length 1.

    Raises:
        ValueError: If the offsets or the schedule are invalid.
    """

    def __init__(
        self, rows: np.ndarray, bias: np.ndarray | None, state: Arrays, unit_length: bool
    ) -> None:
        self._rows, self._bias, self._unit_length = rows, bias, unit_length
        means, mean_bias, offsets, self._ids, self._codes, self._scales, schedule = state
        self._means, self._mean_bias = np.array(means), np.array(mean_bias)
        self._offsets, self._schedule = offsets.astype(np.int64), np.array(schedule)
        self._num_lists = len(means)
        self._check()

    def state(self) -> Arrays:
        """Returns the seven arrays."""
        return [
            self._means,
            self._mean_bias,
            self._offsets.astype(np.uint32),
            self._ids,
            self._codes,
            self._scales,
            self._schedule,
        ]

    def fit(self, sample: np.ndarray, step: int | None = None) -> None:
        """Fits the lists by k-means on a sample of the rows, and one pass over all rows."""
        lists = np.arange(self._num_lists)
        self._means[:] = 0
        self._mean_bias[:] = 0
        seeds = sample[lists * len(sample) // self._num_lists]
        self._move_means(_Sums(self, seeds, lists), np.zeros(self._num_lists, np.int64))
        for _ in range(_ROUNDS):
            self._round(sample)
        self._place(self._round(np.arange(len(self._rows))))
        self._pack()
        self._schedule[1] = self._schedule[0] if step is None else step

    def keep_up(self, interval: int, rows_a_step: int, sample: np.ndarray) -> None:
        """Counts a step. Fits or updates the lists if this is due."""
        step, fitted_at = (int(number) for number in self._schedule)
        self._schedule[0] += 1
        stale, age = fitted_at < 0 or self._offsets[-1] == 0, step - fitted_at
        if not stale and age > 0 and age % interval == 0:
            num_classes = len(self._rows)
            count = min(interval * rows_a_step, num_classes)
            turn = (age // interval - 1) % num_classes
            moved = self._update(turn * count % num_classes, count)
            is_first_turn = age < -(-num_classes // rows_a_step)
            stale = not is_first_turn and moved * 10 >= count * 9
        if stale:
            self.fit(sample, step)

    def scored_rows(self, ids: np.ndarray) -> np.ndarray:
        """Returns float32 rows, with `unit_length` scaled to length 1."""
        rows = self._rows[ids].astype(np.float32)
        if self._unit_length:
            rows = (rows * _inverse_lengths(rows)[:, np.newaxis]).astype(np.float32)
        return rows

    def biases(self, ids: np.ndarray) -> np.ndarray:
        """Returns float32 biases. They are 0 if the classes have none."""
        return np.zeros(len(ids), np.float32) if self._bias is None else self._bias[ids]

    @property
    def num_lists(self) -> int:
        """The number of lists."""
        return self._num_lists

    def _check(self) -> None:
        ends = self._offsets
        fits = ends[0] == 0 and ends[-1] in (0, len(self._ids)) and np.all(np.diff(ends) >= 0)
        if not fits:
            raise ValueError(WRONG_OFFSETS.format(len(self._ids)))
        step, fitted_at = (int(number) for number in self._schedule)
        if not (0 <= step < _MOST_STEPS and -1 <= fitted_at < _MOST_STEPS):
            raise ValueError(
                "schedule must be [the number of the next step, the step of the last fit or "
                f"-1], from 0 or -1 to 2^62 - 1, got [{step}, {fitted_at}]"
            )

    def _round(self, ids: np.ndarray) -> np.ndarray:
        """Assigns rows to the nearest lists, and moves each mean to the middle of its rows."""
        lists = self._nearest(ids)
        sums = _Sums(self, ids, lists)
        self._move_means(sums, sums.counts)
        self._seed_empty_lists(sums.counts, sums.last)
        return lists

    def _update(self, begin: int, count: int) -> int:
        """Reassigns `count` rows, and packs all rows. Returns how many rows moved."""
        ids = (begin + np.arange(count)) % len(self._rows)
        nearest, lists = self._nearest(ids), self._list_of_each_class()
        moved = np.count_nonzero(lists[ids] != nearest)
        lists[ids] = nearest
        sums = _Sums(self, ids, nearest)
        self._place(lists)
        sizes = np.diff(self._offsets)
        self._move_means(sums, sizes)
        middles = (self._offsets[:-1] + self._offsets[1:]) // 2
        members = self._ids[np.minimum(middles, len(self._ids) - 1)].astype(np.int64)
        self._seed_empty_lists(sizes, np.where(sizes > 0, members, 0))
        self._pack()
        return int(moved)

    def _nearest(self, ids: np.ndarray) -> np.ndarray:
        """Returns the list whose mean has the largest cosine with each row, by 8-bit codes."""
        norms = np.sqrt(_squares(self._means))[:, np.newaxis]
        with np.errstate(all="ignore"):
            directions = np.where(norms > 0, self._means / norms, 0).astype(np.float32)
        numbers, scales = quantized(directions, MOST_OF_ROW)
        numbers = np.ascontiguousarray(numbers.T)
        nearest, most = np.empty(len(ids), np.int64), most_of_query(self._means.shape[1])
        step = min(_ROWS_AT_ONCE, max(64, _SCORES_AT_ONCE // self._num_lists))
        for block in _blocks(len(ids), step):
            codes, _ = quantized(self._rows[ids[block]].astype(np.float32), most)
            scores = codes @ numbers
            scores *= scales
            nearest[block] = scores.argmax(axis=1)
        return nearest

    def _move_means(self, sums: "_Sums", sizes: np.ndarray) -> None:
        """Moves the means of lists towards the means of the summed rows."""
        moves = np.flatnonzero(sums.counts)
        counts = sums.counts[moves]
        sizes = np.maximum(sizes[moves], counts)
        keep = 1 - counts / sizes
        mean_bias = keep * self._mean_bias[moves] + sums.bias[moves] / sizes
        self._mean_bias[moves] = mean_bias
        keep, sizes = keep[:, np.newaxis], sizes[:, np.newaxis]
        self._means[moves] = keep * self._means[moves] + sums.rows[moves] / sizes

    def _seed_empty_lists(self, sizes: np.ndarray, members: np.ndarray) -> None:
        """Sets the means of empty lists to members of the longest lists, which splits these."""
        order = np.argsort(-sizes, kind="stable")
        count = min(np.count_nonzero(sizes == 0), np.count_nonzero(sizes > 1))
        empty, ids = order[::-1][:count], members[order[:count]]
        rows = self.scored_rows(ids)
        found = _squares(rows) > 0
        self._means[empty[found]] = rows[found]
        self._mean_bias[empty[found]] = self.biases(ids)[found]

    def _place(self, lists: np.ndarray) -> None:
        """Sets offsets and ids from the list of each class. Full lists overflow into others."""
        few = mean_members(len(lists), self._num_lists)
        most = _MOST_TIMES_MEAN * few
        sizes = np.bincount(lists, minlength=self._num_lists)
        by_list = np.argsort(lists, kind="stable")
        if sizes.max() > most:
            begins = np.cumsum(sizes) - sizes
            rank = np.arange(len(lists)) - np.repeat(begins, sizes)
            left_over = np.sort(by_list[rank >= most])
            room = np.maximum(few - np.minimum(sizes, most), 0)
            places = np.repeat(np.arange(self._num_lists), room)
            lists[left_over] = places[: len(left_over)]
            sizes = np.bincount(lists, minlength=self._num_lists)
            by_list = np.argsort(lists, kind="stable")
        self._offsets = np.concatenate([[0], np.cumsum(sizes)])
        self._ids = by_list.astype(np.uint32)

    def _list_of_each_class(self) -> np.ndarray:
        lists = np.zeros(len(self._ids), np.int64)
        sizes = np.diff(self._offsets)
        of_place = np.repeat(np.arange(self._num_lists), sizes)
        ids = self._ids[: len(of_place)]
        valid = ids < len(lists)
        lists[ids[valid]] = of_place[valid]
        return lists

    def _pack(self) -> None:
        """Packs all rows in the order of the lists, 16 of them interleaved."""
        groups, _, _, _ = self._codes.shape
        dim, width = self._means.shape[1], self._codes.shape[1] * CODES_TOGETHER
        codes = np.full([groups, width // CODES_TOGETHER, GROUP_ROWS], 0, np.uint32)
        values = np.zeros([groups, GROUP_ROWS], np.float32)
        biases = np.full([groups, GROUP_ROWS], -np.inf, np.float32)
        for block in _blocks(len(self._ids), _ROWS_AT_ONCE):
            ids = self._ids[block].astype(np.int64)
            rows = self._rows[ids].astype(np.float32)
            numbers, scales = quantized(rows, MOST_OF_ROW)
            bias = self.biases(ids)
            exists = ~np.isnan(scales) & np.isfinite(bias)
            if self._unit_length:
                scales = scales * _inverse_lengths(rows)
            place = slice(block.start, block.start + len(ids))
            values.reshape(-1)[place] = np.where(exists, scales, 0)
            biases.reshape(-1)[place] = np.where(exists, bias, -np.inf)
            some = -(-len(ids) // GROUP_ROWS)
            packed = np.full([some * GROUP_ROWS, width], CODE_OF_ZERO, np.uint8)
            packed[: len(ids), :dim] = (numbers + CODE_OF_ZERO).astype(np.uint8)
            words = packed.view(np.uint32).reshape(some, GROUP_ROWS, -1)
            first = block.start // GROUP_ROWS
            codes[first : first + some] = words.transpose(0, 2, 1)
        self._codes = codes.view(np.uint8).reshape(self._codes.shape)
        self._scales = np.stack([values, biases], axis=1)


class _Sums:
    """Sums of the rows and biases of each list, without rows that are 0 or not finite.

    Attributes:
        counts: int64 `[num_lists]`, the number of summed rows.
        last: int64 `[num_lists]`, the last of them.
        rows: float64 `[num_lists, dim]`.
        bias: float64 `[num_lists]`.
    """

    def __init__(self, file: Lists, ids: np.ndarray, lists: np.ndarray) -> None:
        num_lists = file.num_lists
        self.counts, self.last = np.zeros(num_lists, np.int64), np.zeros(num_lists, np.int64)
        self.bias = np.zeros(num_lists)
        for block in _blocks(len(ids), _ROWS_AT_ONCE):
            some, of_some = ids[block], lists[block]
            rows, bias = file.scored_rows(some), file.biases(some)
            if block.start == 0:
                self.rows = np.zeros([num_lists, rows.shape[1]])
            counted = (_squares(rows) > 0) & np.isfinite(bias)
            some, of_some = some[counted], of_some[counted]
            self.counts += np.bincount(of_some, minlength=num_lists)
            self.bias += np.bincount(of_some, bias[counted], num_lists)
            self.last[of_some] = some
            order = np.argsort(of_some, kind="stable")
            present, begins = np.unique(of_some[order], return_index=True)
            rows = rows[counted][order]
            if len(present):
                self.rows[present] += np.add.reduceat(rows, begins, axis=0, dtype=np.float64)


WRONG_OFFSETS = (
    "offsets must increase from 0 to num_classes = {}, or all be 0 before the lists are "
    "fitted, but these do not. Fit the inverted file again"
)


def _squares(rows: np.ndarray) -> np.ndarray:
    """Returns the sum of squares of each row, float64; 0 if the row is not finite."""
    squares = np.einsum("nd,nd->n", rows, rows, dtype=np.float64)
    return np.where(np.isfinite(squares), squares, 0)


def _inverse_lengths(rows: np.ndarray) -> np.ndarray:
    return 1 / np.sqrt(np.maximum(_squares(rows), _LEAST_SQUARE))


def _blocks(count: int, size: int) -> Iterator[slice]:
    for first in range(0, count, size):
        yield slice(first, min(first + size, count))
