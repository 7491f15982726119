"""Random calls of the ops on candidates' logits."""

import numpy as np
import tensorflow as tf

from tests.fuzz import checks
from tests.fuzz.draws import Call
from tf_largeout import ops
from tf_largeout.ops.library import gen_ops

# So few that candidates are often labels.
NUM_IDS = 40


def mask_accidental_hits(draws):
    arguments = _logits_labels_candidates(draws)
    return _fill_call(ops.mask_accidental_hits, arguments, {}, checks.LOWEST)


def largeout_fill_accidental_hits(draws):
    fill = draws.pick((0.0, -1.0, np.inf, np.nan))
    arguments = _logits_labels_candidates(draws)
    return _fill_call(
        gen_ops.largeout_fill_accidental_hits, arguments, {"fill": fill}, np.float32(fill)
    )


def shifted_candidate_logits(draws):
    return _shift_call(draws, ops.shifted_candidate_logits)


def largeout_shift_candidate_logits(draws):
    return _shift_call(draws, gen_ops.largeout_shift_candidate_logits)


def candidate_log_partition(draws):
    arguments = _with_offsets(draws)

    def check(log_partition):
        logits, offsets, labels, candidates = arguments
        checks.has_shape(log_partition, len(logits))
        hits = checks.hits(labels, candidates, len(logits))
        shifted = np.where(hits, -np.inf, logits + offsets)
        _is_log_partition(log_partition, shifted)

    return Call(ops.candidate_log_partition, arguments, {}, check)


def largeout_candidate_log_partition_grad(draws):
    logits, offsets, labels, candidates = arguments = _with_offsets(draws)
    batch = logits.shape[0] if logits.shape.rank else 0
    log_partition = draws.floats(batch)
    if draws.odd_chance == 0:
        log_partition = ops.candidate_log_partition(*arguments)
    arguments += (log_partition, draws.floats(batch))

    def check(gradients):
        d_logits, d_offsets = gradients
        checks.has_shape(d_logits, *logits.shape)
        checks.has_shape(d_offsets, *offsets.shape)
        hits = checks.hits(labels, candidates, len(logits))
        hits[~np.isfinite(arguments[-2]) | ~np.isfinite(arguments[-1])] = False
        checks.equal(d_logits.numpy()[hits], 0)

    return Call(gen_ops.largeout_candidate_log_partition_grad, arguments, {}, check)


def candidate_ranks(draws):
    logits, offsets, no_effect, candidates = _with_offsets(draws)
    shape = (logits.shape[0] if logits.shape.rank else 0, draws.size())
    true_logits, labels = draws.floats(*shape), draws.ids(shape, NUM_IDS)

    def check(ranks):
        checks.has_shape(ranks, *labels.shape)
        last = logits.shape[1] + labels.shape[1]
        checks.within(ranks, 0, last + 1)
        unknown = (labels.numpy() < 0) | np.isnan(true_logits)
        checks.equal(ranks.numpy()[unknown], last)
        checks.within(ranks.numpy()[~unknown], 0, last)

    arguments = logits, offsets, no_effect, candidates, labels, true_logits
    return Call(ops.candidate_ranks, arguments, {}, check)


def _fill_call(function, arguments, options, fill):
    def check(filled):
        logits, labels, candidates = arguments
        hits = checks.hits(labels, candidates, len(logits))
        checks.equal(filled, np.where(hits, fill, logits))

    return Call(function, arguments, options, check)


def _shift_call(draws, function):
    arguments = _with_offsets(draws)

    def check(shifted):
        logits, offsets, labels, candidates = arguments
        hits = checks.hits(labels, candidates, len(logits))
        checks.equal(shifted, np.where(hits, checks.LOWEST, logits + offsets))

    return Call(function, arguments, {}, check)


def _logits_labels_candidates(draws):
    batch, num_candidates = draws.rows(), draws.size()
    logits = draws.floats(batch, num_candidates)
    labels = draws.ids((batch, draws.size() % 8), NUM_IDS)
    own = (batch, num_candidates) if draws.chance(0.5) else (num_candidates,)
    return logits, labels, draws.ids(own, NUM_IDS)


def _with_offsets(draws):
    logits, labels, candidates = _logits_labels_candidates(draws)
    shape = logits.shape[-1:] if draws.chance(0.5) else logits.shape
    return logits, draws.floats(*shape), labels, candidates


def _is_log_partition(log_partition, shifted):
    """Checks that a logsumexp is from the highest logit to that plus log(num_candidates)."""
    if shifted.shape[1] == 0:
        return
    highest = shifted.max(axis=1).astype(np.float64)
    known = np.isfinite(highest)
    surplus = log_partition.numpy()[known] - highest[known]
    error = 1e-5 * np.abs(highest[known]) + 1e-4
    assert (surplus >= -error).all(), f"below the highest logit by {surplus.min()}"
    most = tf.math.log(float(shifted.shape[1])).numpy()
    assert (surplus <= most + error).all(), f"above log(sum(exp(.))) by {surplus.max() - most}"
