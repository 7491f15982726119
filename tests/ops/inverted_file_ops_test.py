import numpy as np
import pytest
import tensorflow as tf

from tests.reference import inverted_file as reference
from tf_largeout.ops import inverted_file_ops as ops

SCHEDULE = 6


class Problem:
    """Classes in clusters, queries near them, and the variables of a file."""

    def __init__(self, num_classes=600, dim=20, num_lists=30, batch=9, seed=0):
        random = np.random.default_rng(seed)
        centres = random.normal(size=[num_classes // 10 + 1, dim])

        def draw(count):
            noise = 0.4 * random.normal(size=[count, dim])
            return (centres[random.integers(len(centres), size=count)] + noise).astype("f4")

        self.embeddings = tf.Variable(draw(num_classes))
        self.bias = tf.Variable(random.normal(size=num_classes).astype("f4"))
        self.features = draw(batch)
        codes_shape, scales_shape = ops.packed_shapes(num_classes, dim)
        shapes = [
            ([num_lists, dim], tf.float32),
            ([num_lists], tf.float32),
            ([num_lists + 1], tf.uint32),
            ([num_classes], tf.uint32),
            (codes_shape, tf.uint8),
            (scales_shape, tf.float32),
        ]
        self.state = [tf.Variable(tf.zeros(s, t), trainable=False) for s, t in shapes]
        self.state.append(tf.Variable([0, -1], dtype=tf.int64, trainable=False))

    def fit(self):
        ops.inverted_file_fit(self.embeddings, self.bias, self.state)

    def search(self, num_probes=4, k=10):
        scores, ids = ops.inverted_file_search(self.features, self.state, num_probes, k)
        return scores.numpy(), ids.numpy()

    def upkeep(self, interval=3, rows_a_step=10):
        arguments = (self.embeddings, self.bias, self.state, interval, rows_a_step)
        ops.inverted_file_upkeep(*arguments)

    def schedule(self):
        return self.state[SCHEDULE].numpy().tolist()

    def values(self):
        return [variable.numpy() for variable in self.state]


@pytest.mark.parametrize("dim", [7, 32, 50])
@pytest.mark.parametrize("batch", [1, 2, 70])
def test_a_search_equals_the_reference(dim, batch):
    problem = Problem(dim=dim, batch=batch)
    problem.fit()
    scores, ids = problem.search(k=10)
    rows, bias = problem.embeddings.numpy(), problem.bias.numpy()
    means, mean_bias, offsets, members = problem.values()[:4]
    expected = reference.search(
        problem.features, rows, bias, means, mean_bias, offsets, members, 4, 10
    )
    hits = [len(set(a) & set(b)) / 10 for a, b in zip(ids, expected, strict=True)]
    assert np.mean(hits) > (0.95 if batch == 70 else 0.75)  # Up to rounding to 8 bits.
    logits = np.einsum("bd,bkd->bk", problem.features, rows[ids]) + bias[ids]
    np.testing.assert_allclose(scores, logits, atol=0.02 * np.abs(logits).max())
    assert np.all(np.diff(scores) <= 0)


def test_a_file_of_width_0_raises_an_error():
    problem = Problem(dim=0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="both at least 1"):
        problem.search()


def test_a_long_list_counts_as_several_lists():
    problem = Problem(num_classes=120, num_lists=4, dim=7, batch=2)
    problem.fit()  # Sets the shapes of the state; its values are replaced.
    means, _, offsets, ids, codes, scales, _ = problem.state
    means.assign(tf.eye(4, 7))
    offsets.assign([0, 90, 100, 110, 120])  # The mean length is 30.
    ids.assign(np.arange(120, dtype="uint32"))
    codes.assign(tf.zeros_like(codes))
    scales.assign(tf.ones_like(scales))
    problem.state[1].assign(tf.zeros([4]))
    problem.features = tf.constant([[4.0, 3, 2, 1, 0, 0, 0], [1, 4, 3, 2, 0, 0, 0]])
    found = problem.search(num_probes=2, k=120)[1]
    assert sorted(set(found[0]) - {-1}) == [*range(90)]
    assert sorted(set(found[1]) - {-1}) == [*range(90, 110)]


def test_fitted_rows_are_in_the_list_of_largest_cosine():
    problem = Problem()
    problem.fit()
    problem.fit()  # The same from the initial state.
    means, _, offsets, members = problem.values()[:4]
    assert sorted(members) == list(range(600))
    lists = np.empty(600, np.int64)
    lists[members] = np.repeat(np.arange(30), np.diff(offsets))
    nearest = reference.nearest_lists(problem.embeddings.numpy(), means)
    assert np.mean(lists == nearest) > 0.9  # The means were updated once more after the rows.


def test_nothing_is_found_before_the_fit():
    scores, ids = Problem().search()
    assert np.all(ids == -1) and np.all(scores == -np.inf)


def test_upkeep_fits_and_then_reassigns_rows_in_turn():
    problem = Problem()
    assert problem.schedule() == [0, -1]
    problem.upkeep()
    assert problem.schedule() == [1, 0]
    fitted = problem.values()
    problem.upkeep()
    problem.upkeep()
    for before, after in zip(fitted[:SCHEDULE], problem.values(), strict=False):
        np.testing.assert_array_equal(before, after)
    problem.embeddings.assign(problem.embeddings * 2.0)
    problem.upkeep()  # 3 steps after the fit: 30 rows were assigned, and all are packed.
    assert problem.schedule() == [4, 0]
    np.testing.assert_allclose(problem.values()[5][:, 0].sum(), 2 * fitted[5][:, 0].sum(), 1e-3)


def test_lists_of_other_weights_are_fitted_again():
    problem = Problem()
    problem.upkeep(rows_a_step=100)
    problem.embeddings.assign(np.random.default_rng(5).normal(size=[600, 20]))
    for _ in range(6):
        problem.upkeep(rows_a_step=100)
    assert problem.schedule() == [7, 6]


@pytest.mark.parametrize("with_bias", [False, True])
def test_ops_on_tensors_equal_ops_on_variables(with_bias):
    problem = Problem()
    if not with_bias:
        problem.bias = None
    bias = None if problem.bias is None else problem.bias.value()
    state = [variable.value() for variable in Problem().state]
    for step in range(8):
        turns = (3, 10) if step < 7 else (1, 100)
        state = ops.inverted_file_kept_up(problem.embeddings.value(), bias, state, *turns)
        problem.upkeep(*turns)
        problem.embeddings.assign(tf.roll(problem.embeddings, step, axis=1))
        for got, expected in zip(state, problem.values(), strict=True):
            np.testing.assert_array_equal(got, expected)
    problem.fit()
    state = ops.inverted_file_fitted(problem.embeddings.value(), bias, state)
    for got, expected in zip(state, problem.values(), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_tensors_of_wrong_shapes_raise_an_error():
    problem = Problem()
    state = [variable.value() for variable in problem.state]
    with pytest.raises(tf.errors.InvalidArgumentError, match="embeddings must be"):
        ops.inverted_file_fitted(tf.zeros([599, 20]), None, state)
    with pytest.raises(tf.errors.InvalidArgumentError, match="means must be"):
        ops.inverted_file_fitted(tf.zeros([600, 20]), None, [tf.zeros([0, 20]), *state[1:]])


def test_values_read_before_an_upkeep_do_not_change():
    problem = Problem()
    problem.fit()
    before = tf.identity(problem.state[3])
    kept = before.numpy().copy()
    problem.embeddings.assign(tf.reverse(problem.embeddings, [0]))
    problem.fit()
    np.testing.assert_array_equal(before, kept)
    assert not np.array_equal(problem.state[3], kept)


def test_values_that_are_not_finite_and_empty_batches_are_handled():
    problem = Problem()
    problem.embeddings.scatter_nd_update([[3], [4]], [[np.nan] * 20, [0.0] * 20])
    problem.fit()
    problem.features[0] = np.inf
    scores, ids = problem.search(num_probes=30, k=600)
    assert np.all(ids[0] == -1) and not np.any(ids == 3)
    assert np.all(np.sum(ids[1:] == 4, axis=1) == 1)
    assert not np.any(np.isnan(scores))
    problem.features = problem.features[:0]
    assert problem.search()[1].shape == (0, 10)


@pytest.mark.parametrize("part", range(6))
def test_wrong_shapes_raise_an_error(part):
    problem = Problem()
    value = problem.state[part]
    problem.state[part] = tf.Variable(tf.zeros([*value.shape[:-1], 5], value.dtype))
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be"):
        problem.search()


def test_wrong_offsets_features_and_embeddings_raise_an_error():
    problem = Problem()
    problem.fit()
    problem.state[2].assign(tf.reverse(problem.state[2], [0]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="offsets must increase"):
        problem.search()
    problem = Problem()
    problem.features = problem.features[:, :5]
    with pytest.raises(tf.errors.InvalidArgumentError, match="features must be .* 20"):
        problem.search()
    with pytest.raises(tf.errors.InvalidArgumentError, match="embeddings must be"):
        problem.embeddings = tf.Variable(tf.zeros([599, 20]))
        problem.bias = None
        problem.fit()
