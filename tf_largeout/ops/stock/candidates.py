"""Operations on the logits of sampled candidates; see `ops/candidate_ops.py`.

Candidates are compared with one column of labels at a time. So the comparison takes no more
memory than the logits, for any number of labels.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_largeout.ops.stock import errors

_LOWEST = tf.float32.min
_MOST_UNROLLED = 16
_INFINITY = float("inf")


def largeout_fill_accidental_hits(
    values: tf.Tensor, labels: tf.Tensor, candidates: tf.Tensor, fill: float
) -> tf.Tensor:
    """Sets values to `fill` where a candidate is a label of the example."""
    values, _, hits = _checked(values, None, labels, candidates)
    return tf.where(hits, fill, values)


def largeout_shift_candidate_logits(
    logits: tf.Tensor, offsets: tf.Tensor, labels: tf.Tensor, candidates: tf.Tensor
) -> tf.Tensor:
    """Adds offsets; accidental hits become the lowest float."""
    logits, offsets, hits = _checked(logits, offsets, labels, candidates)
    return tf.where(hits, _LOWEST, logits + offsets)


def largeout_candidate_log_partition(
    logits: tf.Tensor, offsets: tf.Tensor, labels: tf.Tensor, candidates: tf.Tensor
) -> tf.Tensor:
    """Returns the logsumexp of the shifted logits without accidental hits, `[batch]`."""
    logits, offsets, hits = _checked(logits, offsets, labels, candidates)

    @tf.custom_gradient
    def log_partition_of(logits: tf.Tensor, offsets: tf.Tensor) -> Any:
        values = tf.where(hits, -_INFINITY, logits + offsets)
        largest = tf.maximum(tf.reduce_max(values, axis=1), _LOWEST)
        total = tf.reduce_sum(tf.exp(values - largest[:, tf.newaxis]), axis=1)
        # The total is 0 if every value is -inf.
        log_partition = largest + tf.math.log(tf.where(total == 0, 1.0, total))

        def gradient(weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            shares = tf.exp(values - log_partition[:, tf.newaxis])
            d_logits = shares * weights[:, tf.newaxis]
            is_shared = offsets.shape.rank == 1
            return d_logits, tf.reduce_sum(d_logits, axis=0) if is_shared else d_logits

        return log_partition, gradient

    return log_partition_of(logits, offsets)


def largeout_candidate_ranks(
    logits: tf.Tensor,
    offsets: tf.Tensor,
    no_effect: tf.Tensor,
    candidates: tf.Tensor,
    labels: tf.Tensor,
    true_logits: tf.Tensor,
) -> tf.Tensor:
    """Counts the candidates and other labels that rank before each label.

    Returns int64 of the shape of `labels`.
    """
    logits, offsets, hits = _checked(logits, offsets, no_effect, candidates, "no_effect")
    labels = errors.tensor(labels, tf.int64, "labels")
    scores = errors.tensor(true_logits, tf.float32, "true_logits")
    logits, offsets, scores = (tf.stop_gradient(each) for each in (logits, offsets, scores))
    _check_rows(labels, "labels", logits)
    if not scores.shape.is_compatible_with(labels.shape):
        errors.fail(
            f"true_logits must be of the shape of labels, {errors.sizes(labels)}, got "
            f"{errors.sizes(scores)}"
        )
    values = tf.where(hits, -_INFINITY, logits + offsets)
    lowest_rank = tf.shape(values, tf.int64)[1] + tf.shape(labels, tf.int64)[1]
    slots = tf.range(tf.shape(labels)[1])

    def count(ranks: tf.Tensor, score: tf.Tensor, slot: int | tf.Tensor) -> tf.Tensor:
        # TensorFlow sums floats far faster than bools or integers.
        above = tf.reduce_sum(tf.cast(values > score, tf.float32), axis=1, keepdims=True)
        return ranks + tf.where(slots == slot, above, 0.0)

    ranks = _fold_slots(count, _labels_above(labels, scores), scores)
    has_rank = (labels >= 0) & ~tf.math.is_nan(scores)
    return tf.where(has_rank, tf.cast(ranks, tf.int64), lowest_rank)


def _labels_above(labels: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Counts the other labels that rank before each label, float32; ties rank by slot."""
    own, other = scores[:, :, tf.newaxis], scores[:, tf.newaxis, :]
    slots = tf.range(tf.shape(labels)[1])
    is_earlier = slots < slots[:, tf.newaxis]
    is_above = (other > own) | ((other == own) & is_earlier)
    counts = (labels >= 0)[:, tf.newaxis] & (labels[:, tf.newaxis] != labels[:, :, tf.newaxis])
    return tf.reduce_sum(tf.cast(is_above & counts, tf.float32), axis=2)


def _checked(
    logits: Any, offsets: Any | None, labels: Any, candidates: Any, labels_name: str = "labels"
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns logits, offsets (0 for None) and accidental hits, bools like the logits."""
    logits = errors.tensor(logits, tf.float32, "logits")
    if logits.shape.rank not in (2, None):
        errors.fail(f"logits must be [batch, num_candidates], got {errors.sizes(logits)}")
    if offsets is None:
        offsets = tf.constant(0.0)
    else:
        offsets = errors.tensor(offsets, tf.float32, "offsets")
        _check_columns(offsets, "offsets", logits)
    labels = errors.tensor(labels, tf.int64, labels_name)
    candidates = errors.tensor(candidates, tf.int64, "candidates")
    _check_rows(labels, labels_name, logits)
    _check_columns(candidates, "candidates", logits)
    return logits, offsets, _hits(logits, labels, candidates)


def _hits(logits: tf.Tensor, labels: tf.Tensor, candidates: tf.Tensor) -> tf.Tensor:
    def add(hits: tf.Tensor, label: tf.Tensor, _: int | tf.Tensor) -> tf.Tensor:
        return hits | ((candidates == label) & (label >= 0))

    return _fold_slots(add, tf.zeros_like(logits, tf.bool), labels)


def _fold_slots(
    function: Callable[[tf.Tensor, tf.Tensor, int | tf.Tensor], tf.Tensor],
    state: tf.Tensor,
    matrix: tf.Tensor,
) -> tf.Tensor:
    """Calls `state = function(state, column, slot)` for all columns, `[batch, 1]`."""
    num_slots = matrix.shape[1]
    if num_slots is not None and num_slots <= _MOST_UNROLLED:
        for slot in range(num_slots):
            state = function(state, matrix[:, slot : slot + 1], slot)
        return state
    # XLA needs a column to compile the loop, even if the loop does not run.
    padded = tf.concat([matrix, tf.zeros([tf.shape(matrix)[0], 1], matrix.dtype)], axis=1)

    def step(slot: tf.Tensor, state: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return slot + 1, function(state, tf.gather(padded, slot, axis=1)[:, tf.newaxis], slot)

    num_slots = tf.shape(matrix)[1]
    going = lambda slot, _: slot < num_slots  # noqa: E731
    return tf.while_loop(going, step, (0, state), parallel_iterations=1)[1]


def _check_columns(tensor: tf.Tensor, name: str, logits: tf.Tensor) -> None:
    """Raises an error unless there is one row for all examples, or one per example."""
    shape = logits.shape
    wanted = shape[1:] if tensor.shape.rank == 1 else shape
    if not tensor.shape.is_compatible_with(wanted):
        errors.fail(
            f"{name} must be [num_candidates] or [batch, num_candidates] for logits "
            f"{errors.sizes(logits)}, got {errors.sizes(tensor)}"
        )


def _check_rows(tensor: tf.Tensor, name: str, logits: tf.Tensor) -> None:
    batch = logits.shape[0] if logits.shape.rank else None
    if not tensor.shape.is_compatible_with([batch, None]):
        errors.fail(
            f"{name} must be [batch, num_{name}] with batch {batch} as in the logits, got "
            f"{errors.sizes(tensor)}"
        )
