"""Operations of sampled losses on the logits of their candidates.

`labels` is int64 `[batch, num_labels]`, padded with -1. `candidates` is int64
`[num_candidates]` if the batch shares them, or `[batch, num_candidates]` if each example has
its own; ids may repeat. An accidental hit is a candidate that is one of the example's labels.
Logits must be float32; cast other types first.
"""

import tensorflow as tf

from tf_largeout.ops.library import gen_ops


def mask_accidental_hits(
    logits: tf.Tensor, labels: tf.Tensor, candidates: tf.Tensor
) -> tf.Tensor:
    """Sets logits, float32 `[batch, num_candidates]`, to the lowest float32 at accidental hits.

    The exponential of such a logit is exactly 0, and so is its gradient. The time is
    O(batch · num_labels + num_candidates) in addition to a copy of the logits.
    """
    return gen_ops.largeout_fill_accidental_hits(logits, labels, candidates, tf.float32.min)


def shifted_candidate_logits(
    logits: tf.Tensor, offsets: tf.Tensor, labels: tf.Tensor, candidates: tf.Tensor
) -> tf.Tensor:
    """Adds offsets to logits and sets accidental hits to the lowest float32.

    `offsets`, float32 `[num_candidates]` or `[batch, num_candidates]`, are the bias of each
    candidate minus the log of its expected count. The other arguments and the result are those
    of `mask_accidental_hits`.
    """
    return gen_ops.largeout_shift_candidate_logits(logits, offsets, labels, candidates)


def candidate_log_partition(
    logits: tf.Tensor, offsets: tf.Tensor, labels: tf.Tensor, candidates: tf.Tensor
) -> tf.Tensor:
    """Computes the logsumexp of `shifted_candidate_logits` per example, without storing these.

    It is float32 `[batch]`, and about -3.4e38 if all candidates are accidental hits or -inf.
    """
    return gen_ops.largeout_candidate_log_partition(logits, offsets, labels, candidates)


def candidate_ranks(
    logits: tf.Tensor,
    offsets: tf.Tensor,
    no_effect: tf.Tensor,
    candidates: tf.Tensor,
    labels: tf.Tensor,
    true_logits: tf.Tensor,
) -> tf.Tensor:
    """Ranks each label among the candidates and the other labels of its example.

    At most k labels of an example have a rank below k. A candidate that was drawn twice counts
    twice. Not differentiable.
    """
    return gen_ops.largeout_candidate_ranks(
        logits, offsets, no_effect, candidates, labels, true_logits
    )


@tf.RegisterGradient("LargeoutFillAccidentalHits")
def _fill_gradient(op: tf.Operation, gradient: tf.Tensor) -> tuple[tf.Tensor, None, None]:
    filled = gen_ops.largeout_fill_accidental_hits(gradient, *op.inputs[1:], fill=0.0)
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
