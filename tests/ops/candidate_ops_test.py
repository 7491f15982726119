import numpy as np
import pytest
import tensorflow as tf

from tests.reference import candidates as reference
from tf_largeout.ops import candidate_ops


def example(per_row, batch=5, num_labels=3, num_candidates=37, num_classes=20, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(-1, num_classes, (batch, num_labels))
    shape = (batch, num_candidates) if per_row else (num_candidates,)
    candidates = rng.integers(0, num_classes, shape)
    logits = rng.normal(size=(batch, num_candidates)).astype(np.float32)
    log_counts = rng.normal(size=shape).astype(np.float32)
    return logits, log_counts, labels, candidates


@pytest.mark.parametrize("per_row", [False, True])
def test_accidental_hits_get_no_weight_and_other_logits_are_unchanged(per_row):
    logits, _, labels, candidates = example(per_row)
    hits = reference.accidental_hits(labels, candidates)
    assert hits.any() and not hits.all()
    masked = candidate_ops.mask_accidental_hits(logits, labels, candidates).numpy()
    assert np.all(np.isfinite(masked))
    assert np.all(np.exp(masked[hits]) == 0)
    np.testing.assert_array_equal(masked[~hits], logits[~hits])


@pytest.mark.parametrize("per_row", [False, True])
def test_offsets_are_added_and_accidental_hits_are_masked(per_row):
    logits, log_counts, labels, candidates = example(per_row)
    hits = reference.accidental_hits(labels, candidates)
    shifted = candidate_ops.shifted_candidate_logits(
        logits, -log_counts, labels, candidates
    ).numpy()
    assert np.all(np.exp(shifted[hits]) == 0)
    np.testing.assert_array_equal(shifted[~hits], (logits - log_counts)[~hits])


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("correct", [False, True])
def test_no_gradient_flows_to_accidental_hits(per_row, correct):
    logits, log_counts, labels, candidates = example(per_row)
    hits = reference.accidental_hits(labels, candidates)
    weights = tf.constant(np.random.default_rng(1).normal(size=logits.shape), tf.float32)
    x = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(x)
        if correct:
            y = candidate_ops.shifted_candidate_logits(x, log_counts, labels, candidates)
        else:
            y = candidate_ops.mask_accidental_hits(x, labels, candidates)
        loss = tf.reduce_sum(tf.where(hits, 0.0, y) * weights) + tf.reduce_sum(y)
    gradient = tape.gradient(loss, x).numpy()
    np.testing.assert_allclose(gradient, np.where(hits, 0, weights.numpy() + 1), rtol=1e-6)


def test_inputs_are_not_changed():
    logits, log_counts, labels, candidates = example(False)
    x = tf.constant(logits)
    candidate_ops.mask_accidental_hits(x, labels, candidates)
    candidate_ops.shifted_candidate_logits(x, log_counts, labels, candidates)
    np.testing.assert_array_equal(x.numpy(), logits)


@pytest.mark.parametrize("used_later", [False, True])
def test_a_gradient_reuses_the_memory_of_logits_only_if_they_are_not_read_later(used_later):
    logits, log_counts, labels, candidates = example(False)

    def gradient_and_logits(x):
        x = x + x
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = candidate_ops.candidate_log_partition(x, log_counts, labels, candidates)
            loss = tf.reduce_sum(y)
        gradient = tape.gradient(loss, x)
        with tf.control_dependencies([gradient]):
            return gradient, tf.identity(x) - 1 if used_later else x[:0]

    found = tf.function(gradient_and_logits)(tf.constant(logits))
    for one, expected in zip(found, gradient_and_logits(tf.constant(logits)), strict=True):
        np.testing.assert_array_equal(one, expected)


def test_ids_above_float_precision_are_distinguished():
    labels = np.array([[2**40 + 1]])
    candidates = np.array([2**40, 2**40 + 1, 2**40 + 2])
    masked = candidate_ops.mask_accidental_hits(
        np.zeros((1, 3), np.float32), labels, candidates
    )
    np.testing.assert_array_equal(masked.numpy() == 0, [[True, False, True]])


@pytest.mark.usefixtures("for_all_simd_levels")
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("num_candidates", [1, 19, 64, 83])
def test_ranks_are_positions_among_candidates_and_labels(per_row, num_candidates):
    # Small integers: many scores are equal. Several labels of an example are equal.
    rng = np.random.default_rng(3)
    logits, offsets, no_effect, candidates = example(per_row, 7, 4, num_candidates)
    logits, offsets = np.round(2 * logits), np.round(2 * offsets)
    true_logits = rng.integers(-2, 6, (7, 5)).astype(np.float32)
    true_logits[2, 1:] = np.nan, np.inf, -np.inf, 0
    labels = rng.integers(-1, 9, (7, 5))
    hits = reference.accidental_hits(no_effect, candidates)
    np.testing.assert_array_equal(
        candidate_ops.candidate_ranks(
            logits, offsets, no_effect, candidates, labels, true_logits
        ),
        reference.ranks(np.where(hits, -np.inf, logits + offsets), true_logits, labels),
    )


@pytest.mark.parametrize("batch,num_candidates", [(0, 4), (3, 0)])
def test_empty_inputs_give_empty_outputs(batch, num_candidates):
    logits = np.zeros((batch, num_candidates), np.float32)
    labels = np.zeros((batch, 2), np.int64)
    candidates = np.zeros(num_candidates, np.int64)
    masked = candidate_ops.mask_accidental_hits(logits, labels, candidates)
    assert masked.shape == logits.shape
    ranks = candidate_ops.candidate_ranks(
        logits, logits, labels, candidates, labels, labels * 1.0
    )
    np.testing.assert_array_equal(ranks, np.tile([0, 0], (batch, 1)))


def test_wrong_shapes_raise_an_error():
    logits = np.zeros((2, 4), np.float32)
    labels = np.zeros((2, 1), np.int64)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"candidates.*\[2,4\].*\[3\]"):
        candidate_ops.mask_accidental_hits(logits, labels, np.zeros(3, np.int64))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"labels.*batch 2.*\[3,1\]"):
        candidate_ops.mask_accidental_hits(
            logits, np.zeros((3, 1), np.int64), np.zeros(4, np.int64)
        )


def test_shapes_are_inferred_in_graphs():
    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 8]),
            tf.TensorSpec([None, None], tf.int64),
            tf.TensorSpec([None], tf.int64),
        ]
    )
    def masked(logits, labels, candidates):
        result = candidate_ops.mask_accidental_hits(logits, labels, candidates)
        assert result.shape.as_list() == [None, 8]
        return result

    assert masked(
        tf.zeros([2, 8]), tf.zeros([2, 1], tf.int64), tf.range(8, dtype=tf.int64)
    ).shape


def _log_partition(logits, offsets, labels, candidates):
    """Computes the log partition by its definition, in float64."""
    hits = reference.accidental_hits(labels, candidates)
    shifted = np.where(hits, -np.inf, logits.astype(np.float64) + offsets)
    return np.logaddexp.reduce(shifted, axis=1), shifted


@pytest.mark.usefixtures("for_all_simd_levels")
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("num_candidates", [1, 15, 16, 37, 300])
def test_log_partition_and_its_gradients_equal_those_of_a_softmax(per_row, num_candidates):
    logits, offsets, labels, candidates = example(
        per_row, batch=70, num_candidates=num_candidates, num_classes=100
    )
    logits *= 20
    weights = np.random.default_rng(2).normal(size=70).astype(np.float32)
    x, y = tf.constant(logits), tf.constant(offsets)
    with tf.GradientTape() as tape:
        tape.watch([x, y])
        actual = candidate_ops.candidate_log_partition(x, y, labels, candidates)
        loss = tf.reduce_sum(actual * weights)
    expected, shifted = _log_partition(logits, offsets, labels, candidates)
    has_any = np.isfinite(expected)
    np.testing.assert_allclose(actual[has_any], expected[has_any], rtol=1e-6, atol=1e-6)
    assert np.all(actual[~has_any] < -1e38)
    d_logits, d_offsets = tape.gradient(loss, [x, y])
    probabilities = np.exp(shifted - np.where(has_any, expected, 0)[:, None])
    d_expected = weights[:, None] * probabilities
    np.testing.assert_allclose(d_logits, d_expected, rtol=1e-4, atol=1e-6)
    d_expected = d_expected if per_row else d_expected.sum(axis=0)
    np.testing.assert_allclose(d_offsets, d_expected, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("for_all_simd_levels")
@pytest.mark.parametrize("num_candidates", [1, 16, 37])
def test_an_example_with_only_accidental_hits_has_no_gradient(num_candidates):
    x, y = tf.zeros([3, num_candidates]), tf.zeros([num_candidates])
    candidates = tf.fill([num_candidates], tf.constant(7, tf.int64))
    with tf.GradientTape() as tape:
        tape.watch([x, y])
        actual = candidate_ops.candidate_log_partition(x, y, [[7], [8], [7]], candidates)
    np.testing.assert_allclose(actual[1], np.log(num_candidates), rtol=1e-6)
    d_logits, d_offsets = tape.gradient(actual, [x, y])
    expected = np.outer([0, 1, 0], np.full(num_candidates, 1 / num_candidates))
    np.testing.assert_allclose(d_logits, expected, rtol=1e-6)
    np.testing.assert_allclose(d_offsets, expected[1], rtol=1e-6)


def test_log_partition_is_precise_if_an_accidental_hit_has_the_largest_logit():
    logits = np.array([[80.0, 1.0, 2.0]], np.float32)
    actual = candidate_ops.candidate_log_partition(
        logits, np.zeros(3, np.float32), np.array([[7]]), np.array([7, 8, 9])
    )
    np.testing.assert_allclose(actual, [np.logaddexp(1, 2)], rtol=1e-6)


@pytest.mark.parametrize("wrong", ["offsets", "labels", "candidates"])
def test_log_partition_of_mismatched_shapes_raises_an_error(wrong):
    inputs = dict(
        logits=np.zeros((2, 3), np.float32), offsets=np.zeros(3, np.float32),
        labels=np.zeros((2, 1), np.int64), candidates=np.zeros(3, np.int64),
    )  # fmt: skip
    inputs[wrong] = inputs[wrong][:1]
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{wrong} must be"):
        candidate_ops.candidate_log_partition(**inputs)


@pytest.mark.parametrize(
    "wrong", ["offsets", "no_effect", "candidates", "labels", "true_logits"]
)
def test_ranks_of_mismatched_shapes_raise_an_error(wrong):
    inputs = dict(
        logits=np.zeros((2, 3), np.float32), offsets=np.zeros(3, np.float32),
        no_effect=np.zeros((2, 1), np.int64), candidates=np.zeros(3, np.int64),
        labels=np.zeros((2, 2), np.int64), true_logits=np.zeros((2, 2), np.float32),
    )  # fmt: skip
    inputs[wrong] = inputs[wrong][:1]
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{wrong} must"):
        candidate_ops.candidate_ranks(**inputs)
