"""Groups interactions by user and numbers the items by frequency."""

import numpy as np

from tf_largeout.datasets.class_order import frequency_order
from tf_largeout.datasets.ragged import Ragged

HELD_OUT = 2  # The last item of a user is for testing, the one before it for validation.


def histories(
    users: np.ndarray, items: np.ndarray, times: np.ndarray | None, k_core: int
) -> tuple[Ragged, np.ndarray, np.ndarray]:
    """Sorts interactions by user and time.

    Args:
        users: Integers `[num_interactions]` from 0.
        items: Integers `[num_interactions]` from 0.
        times: Numbers `[num_interactions]`. Interactions of equal time keep their order. None
            keeps the order of each user's interactions.
        k_core: Users and items with fewer interactions are removed repeatedly, until all that
            remain have at least this number.

    Returns:
        `(rows, kept_users, kept_items)`: the items of each user, int32 ids from 1; the old
        number of the user of each row; and the old numbers of the items, in the order of ids.
    """
    kept = _core(users, items, k_core)
    users, items = users[kept], items[kept]
    keys = [users] if times is None else [times[kept], users]
    order = np.lexsort(keys)
    kept_users, lengths = np.unique(users[order], return_counts=True)
    rows = Ragged.from_lengths(items[order], lengths)
    counts = np.bincount(items, minlength=items.max(initial=-1) + 1)
    # Items that occur only among the held out ones follow all others.
    by_training, _ = frequency_order(training_counts(rows, len(counts)))
    by_training = by_training[counts[by_training] > 0]
    ids = np.zeros(len(counts), np.int32)
    ids[by_training] = np.arange(1, len(by_training) + 1, dtype=np.int32)
    return Ragged(ids[rows.values], rows.offsets), kept_users, by_training


def training_lengths(rows: Ragged) -> np.ndarray:
    """Returns int64 `[num_users]`: how many items of each user are for training.

    Users with fewer than three items are not evaluated, so all their items are for training.
    """
    lengths = rows.lengths
    return np.where(lengths > HELD_OUT, lengths - HELD_OUT, lengths)


def training_counts(rows: Ragged, num_items: int) -> np.ndarray:
    """Returns int64 `[num_items]`: how often each item occurs in the training part."""
    within = np.arange(len(rows.values)) - np.repeat(rows.offsets[:-1], rows.lengths)
    is_training = within < np.repeat(training_lengths(rows), rows.lengths)
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
