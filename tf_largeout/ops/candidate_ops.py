"""What a sampled loss does with the logits of its candidates.

Everywhere: `labels` int64 `[batch, num_labels]` padded with -1; `candidates`
int64 `[num_candidates]`, or `[batch, num_candidates]` for candidates of each row's
own; ids may repeat. An accidental hit is a candidate that is one of its row's
labels. Only float32 logits; cast others before.
"""

import tensorflow as tf

from tf_largeout.ops.library import gen_ops


def mask_accidental_hits(
    logits: tf.Tensor, labels: tf.Tensor, candidates: tf.Tensor
) -> tf.Tensor:
    """Returns `logits` with the accidental hits set to the lowest float.

    Their exp is then exactly 0, as is the gradient that flows to them. The time
    is O(batch · num_labels + num_candidates) beyond a copy of the logits.

    Args:
        logits: float32 `[batch, num_candidates]`.
        labels: int64 `[batch, num_labels]`, padded with -1.
        candidates: int64 `[num_candidates]` or `[batch, num_candidates]`.

    Returns:
        float32 `[batch, num_candidates]`.
    """
    return gen_ops.largeout_fill_accidental_hits(
        logits, labels, candidates, fill=tf.float32.min
    )


def shifted_candidate_logits(
    logits: tf.Tensor, offsets: tf.Tensor, labels: tf.Tensor, candidates: tf.Tensor
) -> tf.Tensor:
    """Returns `logits + offsets` with accidental hits at the lowest float.

    Args:
        logits: float32 `[batch, num_candidates]`.
        offsets: float32 `[num_candidates]` or `[batch, num_candidates]`: the bias of a
            candidate less the log of its expected count.
        labels: int64 `[batch, num_labels]`, padded with -1.
        candidates: int64 `[num_candidates]` or `[batch, num_candidates]`.

    Returns:
        float32 `[batch, num_candidates]`.
    """
    return gen_ops.largeout_shift_candidate_logits(logits, offsets, labels, candidates)


def candidate_log_partition(
    logits: tf.Tensor, offsets: tf.Tensor, labels: tf.Tensor, candidates: tf.Tensor
) -> tf.Tensor:
    """The logsumexp of each row of `shifted_candidate_logits`, without forming them.

    One pass over the logits; the backward pass makes one more and writes only the gradient.

    Args:
        logits: float32 `[batch, num_candidates]`.
        offsets: float32 `[num_candidates]` or `[batch, num_candidates]`.
        labels: int64 `[batch, num_labels]`, padded with -1.
        candidates: int64 `[num_candidates]` or `[batch, num_candidates]`.

    Returns:
        float32 `[batch]`; about -3.4e38 where every candidate is an accidental hit or -inf.
    """
    return gen_ops.largeout_candidate_log_partition(logits, offsets, labels, candidates)


def candidate_ranks(logits: tf.Tensor, true_logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Ranks each label among the candidates and the other labels of its row.

    A rank is the number of candidates and of other labels that score higher, so
    at most k labels of a row have a rank below k. Mask accidental hits first.
    A candidate that was drawn twice counts twice. Not differentiable.

    Args:
        logits: float32 `[batch, num_candidates]`.
        true_logits: float32 `[batch, num_labels]`.
        labels: int64 `[batch, num_labels]`, padded with -1; only the sign and
            repeats within a row matter.

    Returns:
        int64 `[batch, num_labels]`; `num_candidates + num_labels` where the label
        is padding or its logit is NaN.
    """
    return gen_ops.largeout_candidate_ranks(logits, true_logits, labels)


@tf.RegisterGradient("LargeoutFillAccidentalHits")
def _fill_gradient(op: tf.Operation, gradient: tf.Tensor) -> tuple[tf.Tensor, None, None]:
    labels, candidates = op.inputs[1], op.inputs[2]
    filled = gen_ops.largeout_fill_accidental_hits(gradient, labels, candidates, fill=0.0)
    return filled, None, None


@tf.RegisterGradient("LargeoutShiftCandidateLogits")
def _shift_gradient(
    op: tf.Operation, gradient: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, None, None]:
    _, offsets, labels, candidates = op.inputs
    filled = gen_ops.largeout_fill_accidental_hits(gradient, labels, candidates, fill=0.0)
    d_offsets = filled if offsets.shape.rank == 2 else tf.reduce_sum(filled, axis=0)
    return filled, d_offsets, None, None


@tf.RegisterGradient("LargeoutCandidateLogPartition")
def _log_partition_gradient(
    op: tf.Operation, gradient: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, None, None]:
    d_logits, d_offsets = gen_ops.largeout_candidate_log_partition_grad(
        *op.inputs, op.outputs[0], gradient
    )
    return d_logits, d_offsets, None, None


tf.no_gradient("LargeoutCandidateRanks")
