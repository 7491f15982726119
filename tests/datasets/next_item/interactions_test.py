"""Interactions and their split agree with a slow implementation."""

import collections

import numpy as np
import pandas as pd
import pytest

from tests.reference import histories as reference
from tf_largeout.datasets import Interactions


def _rows(num_users=30, num_items=40, num=400, seed=0):
    """Returns random interactions. Few distinct times, so that many are equal."""
    rng = np.random.default_rng(seed)
    users = rng.zipf(1.6, num) % num_users
    items = rng.zipf(1.4, num) % num_items
    times = rng.integers(0, 25, num)
    rows = [(f"u{u}", f"i{i}", int(t)) for u, i, t in zip(users, items, times, strict=True)]
    return [*rows, ("u1", "last", 99)]  # An item that is only held out.


def _named_histories(data):
    return {
        user: data.item_names[data.history(row)].tolist()
        for row, user in enumerate(data.user_names)
    }


@pytest.mark.parametrize("k_core", [1, 3, 5])
def test_histories_are_those_of_a_slow_implementation(k_core):
    rows = _rows()
    data = Interactions.from_columns(*zip(*rows, strict=True), k_core=k_core)
    expected = reference.histories(rows, k_core)
    assert _named_histories(data) == expected
    assert len(data) == sum(map(len, expected.values()))
    assert data.num_users == len(expected)
    assert data.num_classes == data.num_items + 1
    if k_core > 1:
        assert len(expected) < len(reference.histories(rows))


def test_items_are_numbered_by_their_counts_in_the_training_part():
    rows = _rows()
    data = Interactions.from_columns(*zip(*rows, strict=True))
    counts = collections.Counter()
    for history in reference.histories(rows).values():
        counts.update(reference.split(history)[0])
    assert data.item_counts[0] == 0 and data.item_names[0] == ""
    assert (np.diff(data.item_counts[1:]) <= 0).all()
    for name, count in zip(data.item_names[1:], data.item_counts[1:], strict=True):
        assert counts[name] == count
    assert data.item_counts[-1] == 0


@pytest.mark.parametrize("length", [1, 4, 100])
def test_the_split_is_that_of_a_slow_implementation(length):
    rows = _rows()
    data = Interactions.from_columns(*zip(*rows, strict=True))
    got = data.leave_one_out(length)
    inputs, labels, evaluated = [], [], []
    for row in range(data.num_users):
        train, validation, test = reference.split(data.history(row).tolist())
        for x, y in reference.windows(train, length):
            inputs.append(x)
            labels.append(y)
        if test is not None:
            evaluated.append((row, train, validation, test))
    np.testing.assert_array_equal(got.x, inputs)
    np.testing.assert_array_equal(got.y, labels)
    assert len(evaluated) < data.num_users, "Choose data with a short history."
    assert got.test.users.tolist() == [row for row, *_ in evaluated]
    for place, (_, train, validation, test) in enumerate(evaluated):
        for split, before, target in (
            (got.validation, train, validation),
            (got.test, [*train, validation], test),
        ):
            padded = [0] * max(length - len(before), 0) + before[-length:]
            assert split.history[place].tolist() == padded
            assert split.target[place] == target
            assert set(split.seen[place].tolist()) == {0, *before}


def test_some_users_are_evaluated_if_there_are_many():
    data = Interactions.from_columns(*zip(*_rows(), strict=True))
    whole, some = data.leave_one_out(5), data.leave_one_out(5, num_evaluated=7, seed=1)
    assert len(some.test.target) == 7 < len(whole.test.target)
    places = np.searchsorted(whole.test.users, some.test.users)
    np.testing.assert_array_equal(whole.test.history[places], some.test.history)
    np.testing.assert_array_equal(whole.test.target[places], some.test.target)
    np.testing.assert_array_equal(whole.x, some.x)
    more = data.leave_one_out(5, num_evaluated=1_000)
    np.testing.assert_array_equal(more.test.users, whole.test.users)


def test_without_times_the_order_is_that_of_the_columns():
    data = Interactions.from_columns([7, 8, 7, 7], [30, 10, 20, 10])
    assert _named_histories(data) == {"7": ["30", "20", "10"], "8": ["10"]}
    assert repr(data) == "<Interactions: 4 of 2 users with 3 items>"


DATES = np.array(["2026-02-01", "2026-01-01", "2026-03-01"], "datetime64[D]")


@pytest.mark.parametrize(
    "times",
    [DATES, DATES.tolist(), pd.Series(DATES), pd.Series(DATES).dt.tz_localize("Europe/Rome")],
)
def test_dates_are_times(times):
    data = Interactions.from_columns([1, 1, 1], ["a", "b", "c"], times)
    assert _named_histories(data) == {"1": ["b", "a", "c"]}


@pytest.mark.parametrize(
    "columns, message",
    [
        (([1, 2], [1, 2, 3]), "same length. Received columns of length 2, 3"),
        (([1, 2], [1, 2], ["x", "y"]), "`times` must contain numbers or dates"),
        ((["a", None], [1, 2]), "`users` must .* types NoneType, str. Drop rows"),
        (([1, 2], [1.0, np.nan]), "`items` must be strings or integers, without missing"),
        (([1, 2], [1, 2], [1.0, np.nan]), "a missing value"),
        (([1, 2], [1, 2], [DATES[0].tolist(), None]), "a missing value"),
        (([], []), "None of the 0 interactions remain"),
        (([1, 2], [1, 2], [1, 2], 2), "with at least 2 interactions each"),
        (([1, 2], [1, 2], [1, 2], 0), "`k_core` must be a positive integer"),
    ],
)
def test_wrong_columns_raise_an_error(columns, message):
    with pytest.raises(ValueError, match=message):
        Interactions.from_columns(*columns)


@pytest.mark.parametrize("user", [-1, 2, "ann"])
def test_the_history_of_an_unknown_user_raises_an_error(user):
    data = Interactions.from_columns(["ann", "ann", "bob"], [1, 2, 3])
    assert data.history(1).tolist() == [3]
    with pytest.raises(IndexError, match="from 0 to 1. Received: user="):
        data.history(user)


def test_users_without_a_history_cannot_be_split():
    data = Interactions.from_columns([1, 1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="The longest of 2 histories has 2"):
        data.leave_one_out(5)
    with pytest.raises(ValueError, match="`length` must be a positive integer"):
        data.leave_one_out(0)
