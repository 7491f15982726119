"""What a sampled loss does with the logits of its candidates.

Everywhere: `labels` int64 [batch, num_labels] padded with -1; `candidates`
int64 [num_candidates], or [batch, num_candidates] for candidates of each row's
own; ids may repeat. An accidental hit is a candidate that is one of its row's
labels. Only float32 logits; cast others before.
"""

import tensorflow as tf

from tf_largeout.ops.library import gen_ops


def mask_accidental_hits(logits, labels, candidates):
    """Returns `logits` with the accidental hits set to the lowest float.

    Their exp is then exactly 0, as is the gradient that flows to them. The time
    is O(batch · num_labels + num_candidates) beyond a copy of the logits.

    Args:
        logits: float32 [batch, num_candidates].
        labels: int64 [batch, num_labels], padded with -1.
        candidates: int64 [num_candidates] or [batch, num_candidates].

    Returns:
        float32 [batch, num_candidates].
    """
    return gen_ops.largeout_fill_accidental_hits(
        logits, labels, candidates, fill=tf.float32.min
    )


def corrected_candidate_logits(logits, log_expected_count, labels, candidates):
    """Returns `logits - log_expected_count` with accidental hits at the lowest float.

    The log-q correction and `mask_accidental_hits` in one pass. No gradient
    flows to `log_expected_count`: a sampler is not learned through its counts.

    Args:
        logits: float32 [batch, num_candidates].
        log_expected_count: float32 [num_candidates] or [batch, num_candidates].
        labels: int64 [batch, num_labels], padded with -1.
        candidates: int64 [num_candidates] or [batch, num_candidates].

    Returns:
        float32 [batch, num_candidates].
    """
    return gen_ops.largeout_correct_candidate_logits(
        logits, log_expected_count, labels, candidates
    )


def candidate_ranks(logits, true_logits, labels):
    """Ranks each label among the candidates and the other labels of its row.

    A rank is the number of candidates and of other labels that score higher, so
    at most k labels of a row have a rank below k. Mask accidental hits first.
    A candidate that was drawn twice counts twice. Not differentiable.

    Args:
        logits: float32 [batch, num_candidates].
        true_logits: float32 [batch, num_labels].
        labels: int64 [batch, num_labels], padded with -1; only the sign and
            repeats within a row matter.

    Returns:
        int64 [batch, num_labels]; num_candidates + num_labels where the label
        is padding or its logit is NaN.
    """
    return gen_ops.largeout_candidate_ranks(logits, true_logits, labels)


@tf.RegisterGradient("LargeoutFillAccidentalHits")
def _fill_gradient(op, gradient):
    labels, candidates = op.inputs[1], op.inputs[2]
    filled = gen_ops.largeout_fill_accidental_hits(gradient, labels, candidates, fill=0.0)
    return filled, None, None


@tf.RegisterGradient("LargeoutCorrectCandidateLogits")
def _correct_gradient(op, gradient):
    labels, candidates = op.inputs[2], op.inputs[3]
    filled = gen_ops.largeout_fill_accidental_hits(gradient, labels, candidates, fill=0.0)
    return filled, None, None, None


tf.no_gradient("LargeoutCandidateRanks")
