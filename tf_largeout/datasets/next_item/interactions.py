"""Interactions of users with items, and their split for training and evaluation."""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_largeout.arguments import is_whole, whole_number
from tf_largeout.datasets.corpus import frequency_order
from tf_largeout.datasets.next_item.leave_one_out import (
    LeaveOneOut,
    leave_one_out,
    training_lengths,
)
from tf_largeout.datasets.ragged import Ragged


@dataclasses.dataclass(frozen=True, repr=False)
class Interactions:
    """The items of each user, in order of time.

    Items have the ids 1 to `num_items`, in descending order of their counts in the training
    part, as the sampler `"log_uniform"` expects. Id 0 is padding. The training part has
    all interactions, except the last two of each user who has at least three.

    Attributes:
        user_names: `[num_users]`, the names of the users in the source.
        item_names: `[num_items + 1]`, the names of the items in the source, by id. The name of
            the padding is "".
        item_counts: int64 `[num_items + 1]`, how often each item occurs in the training part,
            for example for `UnigramSampler`.
    """

    user_names: np.ndarray
    item_names: np.ndarray
    item_counts: np.ndarray
    _rows: Ragged

    @classmethod
    def from_columns(
        cls,
        users: Sequence[Any] | np.ndarray,
        items: Sequence[Any] | np.ndarray,
        times: Sequence[Any] | np.ndarray | None = None,
        k_core: int = 1,
    ) -> "Interactions":
        """Creates `Interactions` from your own data, such as columns of a pandas data frame.

        Args:
            users: `[num_interactions]`, strings or integers.
            items: `[num_interactions]`, strings or integers.
            times: `[num_interactions]`, numbers or dates. Interactions of equal time keep their
                order. None, the default, keeps the order of each user's interactions.
            k_core: As in `datasets.interactions`.

        Raises:
            ValueError: If the columns differ in length, a value is missing, a time is not a
                number or a date, or no interactions are left.
        """
        user_names, user_numbers = _numbered("users", users)
        item_names, item_numbers = _numbered("items", items)
        when = None if times is None else _times(times)
        lengths = [len(user_numbers), len(item_numbers)] + ([] if when is None else [len(when)])
        if len(set(lengths)) > 1:
            raise ValueError(
                "`users`, `items` and `times` must have the same length. Received columns of "
                f"length {', '.join(map(str, lengths))}."
            )
        names = user_names.astype(str), item_names.astype(str)
        return cls.from_numbers(user_numbers, item_numbers, when, *names, k_core)

    @classmethod
    def from_numbers(
        cls,
        users: np.ndarray,
        items: np.ndarray,
        times: np.ndarray | None,
        user_names: np.ndarray,
        item_names: np.ndarray,
        k_core: int = 1,
    ) -> "Interactions":
        """Like `from_columns`, for users and items that are indices of the given names."""
        k_core = whole_number("k_core", k_core)
        rows, kept_users, kept_items = histories(users, items, times, k_core)
        if not len(rows.values):
            raise ValueError(
                f"Expected users and items with at least {k_core} interactions each. None of "
                f"the {len(users):,} interactions remain. Received: k_core={k_core}."
            )
        return cls(
            user_names=user_names[kept_users],
            item_names=np.concatenate([[""], item_names[kept_items]]),
            item_counts=training_counts(rows, len(kept_items) + 1),
            _rows=rows,
        )

    def __repr__(self) -> str:
        return (
            f"<Interactions: {len(self):,} of {self.num_users:,} users with "
            f"{self.num_items:,} items>"
        )

    def __len__(self) -> int:
        return len(self._rows.values)

    @property
    def num_users(self) -> int:
        """Number of users."""
        return len(self._rows)

    @property
    def num_items(self) -> int:
        """Number of items, without the padding."""
        return len(self.item_names) - 1

    @property
    def num_classes(self) -> int:
        """`num_items + 1`: the items and the padding."""
        return len(self.item_names)

    def history(self, user: int) -> np.ndarray:
        """Returns int32 `[num_interactions of the user]`, the items of a user, oldest first.

        Args:
            user: Position of the user in `user_names`, from 0 to `num_users - 1`.

        Raises:
            IndexError: If `user` is not such a position.
        """
        if not (is_whole(user) and 0 <= user < self.num_users):
            raise IndexError(
                f"`user` must be a position in `user_names`, from 0 to {self.num_users - 1}. "
                f"Received: user={user!r}. To find the position of a name, use "
                "np.flatnonzero(data.user_names == name)."
            )
        return self._rows.row(user)

    def leave_one_out(
        self, length: int, num_evaluated: int | None = None, seed: int = 0
    ) -> LeaveOneOut:
        """Keeps the last item of each user for testing, and the item before it for validation.

        Args:
            length: Number of items per input, which is the number of positions of the model.
                The training items of a user with a longer history are divided into several
                inputs, so that each item except the first is a label exactly once.
            num_evaluated: Evaluate at most this many users, chosen at random. Defaults to all
                users with at least three items.
            seed: Seed for the random choice of users.

        Raises:
            ValueError: If an argument is invalid, or no user has enough items to train on, or
                to evaluate.
        """
        return leave_one_out(
            self._rows,
            whole_number("length", length),
            whole_number("num_evaluated", num_evaluated, or_none=True),
            seed,
        )


def _numbered(name: str, column: Sequence[Any] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct values of a column, and the number of each value."""
    array = np.asarray(column)
    try:
        names, numbers = np.unique(array, return_inverse=True)
    except TypeError:  # values that cannot be sorted, such as None and strings
        names = None
    if names is None or (names != names).any():  # NaN differs from itself
        kinds = sorted({type(value).__name__ for value in array.ravel().tolist()})
        raise ValueError(
            f"`{name}` must be strings or integers, without missing values. Received values of "
            f"the types {', '.join(kinds)}. Drop rows with missing values, as "
            "pandas.DataFrame.dropna does."
        )
    return names, numbers


def _times(times: Sequence[Any] | np.ndarray) -> np.ndarray:
    """Returns times as an array of numbers or dates without missing values."""
    array = np.asarray(times)
    if array.dtype == object and not any(isinstance(value, str) for value in array.flat):
        with contextlib.suppress(TypeError, ValueError):
            array = np.asarray(times, "datetime64[us]")  # datetimes, and dates with a time zone
    is_time = array.dtype.kind in "iufM"
    if is_time and not (np.isnan(array).any() if array.dtype.kind in "fM" else False):
        return array
    what = "a missing value" if is_time else f"values such as {array[:1].tolist()}"
    raise ValueError(
        f"`times` must contain numbers or dates without missing values. Received {what}. "
        "Convert strings into dates, as with pandas.to_datetime."
    )


def histories(
    users: np.ndarray, items: np.ndarray, times: np.ndarray | None, k_core: int
) -> tuple[Ragged, np.ndarray, np.ndarray]:
    """Sorts interactions by user and time; returns `(rows, kept_users, kept_items)`.

    `rows` have the items of each user, int32 ids from 1. The others are the old numbers of the
    user of each row, and of the items in the order of their ids.
    """
    kept = _core(users, items, k_core)
    users, items = users[kept], items[kept]
    keys = [users] if times is None else [times[kept], users]
    order = np.lexsort(keys)
    kept_users, lengths = np.unique(users[order], return_counts=True)
    rows = Ragged.from_lengths(items[order], lengths)
    counts = np.bincount(items)
    # Items that occur only among the held out ones follow all others.
    by_training, _ = frequency_order(training_counts(rows, len(counts)))
    by_training = by_training[counts[by_training] > 0]
    ids = np.zeros(len(counts), np.int32)
    ids[by_training] = np.arange(1, len(by_training) + 1, dtype=np.int32)
    return Ragged(ids[rows.values], rows.offsets), kept_users, by_training


def training_counts(rows: Ragged, num_items: int) -> np.ndarray:
    """Returns int64 `[num_items]`: how often each item occurs in the training part."""
    is_training = rows.places < np.repeat(training_lengths(rows), rows.lengths)
    return np.bincount(rows.values[is_training], minlength=num_items)


def _core(users: np.ndarray, items: np.ndarray, least: int) -> np.ndarray:
    """Returns the positions of the interactions of the k-core."""
    kept = np.arange(len(users))
    if least <= 1:
        return kept
    while True:
        stay = np.ones(len(kept), bool)
        for numbers in (users, items):
            counts = np.bincount(numbers[kept])
            stay &= counts[numbers[kept]] >= least
        if stay.all():
            return kept
        kept = kept[stay]
