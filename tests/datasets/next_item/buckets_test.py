"""Batches by length contain each sequence once, without most of the padding."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tf_largeout.datasets.next_item.leave_one_out import Buckets, bucket_widths

LENGTH = 12


@pytest.fixture(scope="module")
def split():
    """The split of users of whom most have short histories."""
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(200), 3 + rng.zipf(1.7, 200).clip(max=40))
    items = rng.integers(0, 30, len(users))
    return tflo.datasets.Interactions.from_columns(users, items).leave_one_out(LENGTH)


def _padded(matrix, padding):
    return np.pad(matrix, [(0, 0), (LENGTH - matrix.shape[1], 0)], constant_values=padding)


def _rows(batches):
    """Returns the rows of `(x, y)` batches, padded again, in the order of the batches."""
    return [
        (tuple(x), tuple(y))
        for inputs, labels in batches
        for x, y in zip(_padded(inputs, 0), _padded(labels, -1), strict=True)
    ]


def _fewest_positions(lengths, sizes, least, num_widths):
    """Returns the fewest positions over all choices of widths."""
    longest = lengths.max()
    fewest = len(lengths) * longest
    for number in range(1, num_widths):
        for others in itertools.combinations(range(1, longest), number):
            widths = np.array([*others, longest])
            bucket = np.searchsorted(widths, lengths)
            if (np.bincount(bucket, sizes, len(widths)) >= least).all():
                fewest = min(fewest, widths[bucket].sum())
    return fewest


@pytest.mark.parametrize("least, num_widths", [(1, 1), (1, 3), (20, 3), (60, 4), (1e9, 4)])
@pytest.mark.parametrize("by_items", [False, True])
def test_no_other_widths_have_fewer_positions(least, num_widths, by_items):
    lengths = np.random.default_rng(1).zipf(1.6, 80).clip(max=9)
    sizes = lengths if by_items else np.ones_like(lengths)
    widths = bucket_widths(lengths, sizes, least, num_widths)
    bucket = np.searchsorted(widths, lengths)
    assert widths[-1] == lengths.max() and len(widths) <= num_widths
    assert len(widths) == 1 or (np.bincount(bucket, sizes) >= least).all()
    assert widths[bucket].sum() == _fewest_positions(lengths, sizes, least, num_widths)


@pytest.mark.parametrize("lengths", [[1], [5], [3] * 7, [1, 9], [*range(1, 40)]])
@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_each_sequence_is_in_a_batch_that_is_not_too_large(lengths, batch_size):
    lengths = np.array(lengths)
    buckets = Buckets(lengths, np.ones_like(lengths), batch_size)
    counts = np.diff(buckets.starts)
    assert counts.sum() == len(lengths) and counts.min() >= 1 and counts.max() <= batch_size
    in_order = np.sort(lengths)
    assert (np.repeat(buckets.widths, counts) >= in_order).all()
    assert len(set(buckets.widths)) <= 8


def test_training_batches_have_each_input_once_and_few_positions(split):
    dataset = split.batches(16)
    batches = [(x.numpy(), y.numpy()) for x, y in dataset]
    assert len(batches) == len(dataset)
    assert sorted(_rows(batches)) == sorted(_rows([(split.x, split.y)]))
    assert len({x.shape[1] for x, _ in batches}) <= 8
    assert sum(x.size for x, _ in batches) < 1.2 * (split.x != 0).sum() < 0.6 * split.x.size
    # One trace for all widths.
    assert [spec.shape.as_list() for spec in dataset.element_spec] == [[None, None]] * 2
    assert [spec.dtype for spec in dataset.element_spec] == ["int32", "int64"]


def test_training_batches_have_about_the_same_number_of_items(split):
    most = 16 * (split.x != 0).sum(axis=1).mean()
    sizes = np.array([(x.numpy() != 0).sum() for x, _ in split.batches(16)])
    assert sizes.max() < most + LENGTH and sizes.min() > most / 2 - LENGTH


def test_each_epoch_has_other_batches_in_another_order_that_each_run_repeats(split):
    def epochs(seed):
        dataset = split.batches(16, seed)
        return [[_rows([(x.numpy(), y.numpy())]) for x, y in dataset] for _ in range(2)]

    first, second = epochs(7)
    assert set(map(frozenset, first)).isdisjoint(map(frozenset, second))
    assert epochs(7) == [first, second] and epochs(8)[0] != first
    in_order, again = epochs(None)
    assert in_order == again
    longest = [max(LENGTH - x.count(0) for x, _ in batch) for batch in in_order]
    assert longest == sorted(longest)
    assert longest != [max(LENGTH - x.count(0) for x, _ in batch) for batch in first]


@pytest.mark.parametrize("name", ["validation", "test"])
def test_held_out_batches_have_each_user_once(split, name):
    held_out = getattr(split, name)
    users = zip(
        held_out.history.tolist(), held_out.target, map(set, held_out.seen), strict=True
    )
    got = []

    def labels(target, seen):
        return np.concatenate([target.numpy()[:, None], seen.numpy()], axis=1)

    batches = [
        (history.numpy(), y.numpy())
        for history, y in held_out.batches(
            32, lambda *both: tf.py_function(labels, both, tf.int64)
        )
    ]
    for history, y in batches:
        rows = _padded(history, 0).tolist()
        got += [(row, one[0], set(one[1:])) for row, one in zip(rows, y, strict=True)]
    assert sorted(got, key=str) == sorted(users, key=str)
    assert max(len(history) for history, _ in batches) <= 32
    assert sum(history.size for history, _ in batches) < 0.7 * held_out.history.size


def test_held_out_batches_have_the_labels_of_metrics(split):
    for history, y in split.test.batches(32):
        assert y.shape == history.shape[:1] and y.dtype == "int64"
    ranks = split.test.batches(32, tflo.metrics.with_exclude)
    assert sum(len(y) for _, y in ranks) == len(split.test.target)


@pytest.mark.parametrize("max_parts", [1, 3])
def test_parts_by_length_have_each_user_once(split, max_parts):
    parts = split.test.by_length(max_parts)
    assert len(parts) == max_parts
    assert all(part.history[:, 0].any() for part in parts)  # no column of padding
    order = np.argsort(np.concatenate([part.users for part in parts]))
    history = np.concatenate([_padded(part.history, 0) for part in parts])
    target = np.concatenate([part.target for part in parts])
    seen = [set(row.tolist()) for part in parts for row in part.seen]
    np.testing.assert_array_equal(history[order], split.test.history)
    np.testing.assert_array_equal(target[order], split.test.target)
    assert [seen[i] for i in order] == [set(row.tolist()) for row in split.test.seen]


def test_wrong_arguments_raise_an_error(split):
    for call, message in (
        (lambda: split.batches(0), "`batch_size` must be a positive integer"),
        (lambda: split.batches(8, "x"), "`shuffle_seed` must be"),
        (lambda: split.test.batches(2.5), "`batch_size` must be a positive integer"),
        (lambda: split.test.by_length(0), "`max_parts` must be a positive integer"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
