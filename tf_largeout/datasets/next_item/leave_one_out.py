"""The split of users' histories: train on all items but the last two of each user."""

import dataclasses
import functools

import numpy as np

from tf_largeout.datasets.next_item.histories import HELD_OUT, training_lengths
from tf_largeout.datasets.ragged import Ragged


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """The histories and the next items of the users of a validation or test split.

    Attributes:
        users: int64 `[num_users]`, positions in `Interactions.user_names`.
        history: int32 `[num_users, length]`, the newest items before the target, padded with 0
            on the left.
        target: int64 `[num_users]`, the next item.
    """

    users: np.ndarray
    history: np.ndarray
    target: np.ndarray
    _before: Ragged = dataclasses.field(repr=False)

    @functools.cached_property
    def seen(self) -> np.ndarray:
        """int32 `[num_users, n + 1]`: all items before the target, padded with 0.

        Each row contains 0, so `exclude=seen` also excludes the padding. The array is computed
        at the first use. It takes `4 * num_users * n` bytes, where n is the length of the
        longest history. Pass `num_evaluated` to `leave_one_out` if this is too much.
        """
        return self._before.padded(1 + int(self._before.lengths.max()), 0)


@dataclasses.dataclass(frozen=True)
class LeaveOneOut:
    """The result of `Interactions.leave_one_out`.

    Attributes:
        x: int32 `[num_inputs, length]`, the inputs of training, padded with 0 on the left.
        y: int64 `[num_inputs, length]`, the item that follows each position, and -1 at padding.
        validation: The second-last item of each evaluated user.
        test: The last item of each evaluated user. Its history contains the validation item.
    """

    x: np.ndarray
    y: np.ndarray
    validation: HeldOut
    test: HeldOut


def leave_one_out(
    rows: Ragged, length: int, num_evaluated: int | None, seed: int
) -> LeaveOneOut:
    """Splits the histories `rows`. The arguments are those of `Interactions.leave_one_out`."""
    users = np.flatnonzero(rows.lengths > HELD_OUT)
    x, y = _training_windows(rows, length)
    if not len(users) or not len(x):
        raise ValueError(
            "Expected users with at least three items: one for training, one for validation "
            f"and one for testing. The longest of {len(rows):,} histories has "
            f"{int(rows.lengths.max(initial=0))}."
        )
    if num_evaluated is not None and num_evaluated < len(users):
        chosen = np.random.default_rng(seed).choice(len(users), num_evaluated, replace=False)
        users = users[np.sort(chosen)]
    validation, test = (_held_out(rows, users, length, back) for back in (HELD_OUT, 1))
    return LeaveOneOut(x, y, validation, test)


def _training_windows(rows: Ragged, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Divides the training part of each history into inputs. Only the oldest one is padded."""
    num_inputs = np.maximum(training_lengths(rows) - 1, 0)
    num_windows = -(-num_inputs // length)
    # The inputs of each user counted from the newest one, 0, which ends the last window.
    ends = np.cumsum(num_inputs)
    age = np.repeat(ends, num_inputs) - 1 - np.arange(num_inputs.sum())
    window = np.repeat(np.cumsum(num_windows), num_inputs) - 1 - age // length
    column = length - 1 - age % length
    source = np.repeat(rows.offsets[:-1] + num_inputs, num_inputs) - 1 - age
    x = np.zeros((num_windows.sum(), length), np.int32)
    y = np.full(x.shape, -1, np.int64)
    x[window, column] = rows.values[source]
    y[window, column] = rows.values[source + 1]
    return x, y


def _held_out(rows: Ragged, users: np.ndarray, length: int, back: int) -> HeldOut:
    """Returns the split whose targets are the items at position `-back` of the histories."""
    chosen = rows.take(users)
    targets = chosen.values[chosen.offsets[1:] - back].astype(np.int64)
    within = np.arange(len(chosen.values)) - np.repeat(chosen.offsets[:-1], chosen.lengths)
    is_before = within < np.repeat(chosen.lengths - back, chosen.lengths)
    before = Ragged.from_lengths(chosen.values[is_before], chosen.lengths - back)
    columns = np.arange(-length, 0)
    is_item = -columns <= before.lengths[:, None]
    places = np.where(is_item, before.offsets[1:, None] + columns, 0)
    history = np.where(is_item, before.values[places], 0).astype(np.int32)
    return HeldOut(users, history, targets, before)
