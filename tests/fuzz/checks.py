"""Properties that results of an op must have for any arguments."""

import numpy as np

LOWEST = np.finfo(np.float32).min


def has_shape(tensor, *shape):
    assert tuple(tensor.shape) == tuple(shape), f"shape {tensor.shape}, expected {shape}"


def within(tensor, low, high):
    """Returns whether all elements are in `[low, high)` and not NaN."""
    values = np.asarray(tensor)
    wrong = values[~((values >= low) & (values < high))]
    assert wrong.size == 0, f"{wrong[:5]} outside of [{low}, {high})"


def falling(scores):
    """Rows are in descending order, with NaN last.

    TensorFlow's threads treat subnormal numbers as 0 in comparisons.
    """
    values = np.where(np.isnan(scores), -np.inf, scores)
    values[np.abs(values) < np.finfo(np.float32).tiny] = 0
    assert (values[..., :-1] >= values[..., 1:]).all(), f"{values} is not in descending order"


def distinct(ids):
    """No id except -1 occurs twice in a row."""
    ids = np.sort(np.asarray(ids), axis=-1)
    repeated = (ids[..., 1:] == ids[..., :-1]) & (ids[..., 1:] != -1)
    assert not repeated.any(), f"{ids} has an id twice"


def padded_at_the_end(ids):
    ids = np.asarray(ids)
    assert not ((ids[..., :-1] == -1) & (ids[..., 1:] != -1)).any(), f"{ids}: -1 before an id"


def equal(actual, expected):
    """Values are bit-identical, or both NaN."""
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected))


def offsets_rise(offsets, end):
    """Each row ascends from 0 to `end`."""
    offsets = np.asarray(offsets).astype(np.int64)
    equal(offsets[..., 0], np.zeros(offsets.shape[:-1]))
    equal(offsets[..., -1], np.full(offsets.shape[:-1], end))
    assert (np.diff(offsets) >= 0).all(), "offsets descend"


def hits(labels, candidates, num_rows):
    """Returns bool `[batch, num_candidates]`: whether a candidate is a label of its example."""
    candidates = np.asarray(candidates)
    candidates = np.broadcast_to(candidates, (num_rows, candidates.shape[-1]))
    labels = np.asarray(labels)
    return ((candidates[:, :, None] == labels[:, None, :]) & (labels >= 0)[:, None, :]).any(-1)


def is_draw(draw, labels, num_classes, num_sampled):
    """Checks the triple of a sampler: valid class ids, and positive expected counts."""
    sampled, true_count, sampled_count = draw
    has_shape(sampled, num_sampled)
    has_shape(sampled_count, num_sampled)
    has_shape(true_count, *labels.shape)
    within(sampled, 0, num_classes)
    is_count(true_count)
    is_count(sampled_count)
    equal(np.asarray(true_count)[np.asarray(labels) == -1], 1)


def is_count(counts):
    counts = np.asarray(counts)
    wrong = counts[~((counts > 0) & np.isfinite(counts))]
    assert wrong.size == 0, f"expected counts {wrong[:5]}"
