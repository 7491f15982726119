"""`KernelTreeSampler` with the classes in shards: it draws as from one tree."""

import numpy as np
import pytest
import tensorflow as tf

from tests.integration.sharded_models import (
    BATCH,
    FEATURES,
    M,
    N,
    assert_counts_are_expected,
    fit,
    model_of,
    rebuilt,
    samples,
    state,
)
from tests.reference import kernel_tree as reference
from tests.slow import slow_but

pytestmark = pytest.mark.portable

ALL = np.tile(np.arange(-1, N), (BATCH, 1))


def probabilities(model):
    """Returns the q of the formula, by numpy in float64."""
    head = model.layers[-1]
    _, bias = head.class_matrix.as_products()
    projected = head.sampler.projection_dim is not None
    projection = state(model, "projection")[0] if projected else None
    rows = head.class_embeddings().numpy()
    return reference.probabilities(FEATURES, rows, bias.numpy(), 100.0, projection)


CASES = [
    ("tree: own", 2, False),
    ("tree: pool", 3, False),
    ("tree: projected own", 3, False),
    ("tree: projected pool", 7, False),
    ("tree: own", 7, False),
    ("tree: own", 3, True),
    ("tree: pool", 3, True),
    ("tree: projected own", 3, True),
    ("tree: projected pool", 2, True),
]


@pytest.mark.parametrize(
    "form, num_shards, normalize",
    slow_but([("tree: projected own", 3, False)], CASES),
)
def test_class_probabilities_equal_those_of_one_tree(form, num_shards, normalize):
    one, sharded = (rebuilt(form, count, normalize=normalize) for count in (1, num_shards))
    expected, found = (
        samples(model, ALL, 1)[0].true_expected_count[:, 1:] / M for model in (one, sharded)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    q = probabilities(sharded)
    q = np.broadcast_to(q.mean(axis=0), q.shape) if "pool" in form else q
    np.testing.assert_allclose(found, q, rtol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "form, num_shards, num_sampled",
    [
        ("tree: pool", 2, M),
        ("tree: projected pool", 3, M),
        ("tree: pool", 3, 5),
        ("tree: pool", 7, M),
    ],
)
def test_reported_counts_match_the_pools(form, num_shards, num_sampled):
    """Also where fewer are drawn than there are rows."""
    model = rebuilt(form, num_shards, num_sampled=num_sampled)
    drawn, expected = np.zeros([2, N])
    for pool, true_counts, counts in samples(model, ALL, 600):
        assert pool.shape == (num_sampled,)
        np.testing.assert_allclose(counts, true_counts[0, 1:][pool], rtol=1e-5)
        np.add.at(drawn, pool, 1)
        expected += true_counts[0, 1:]
    assert_counts_are_expected(drawn, expected)
    q = probabilities(model).mean(axis=0)
    assert reference.chi_square_deviation(drawn, q) < 5


@pytest.mark.slow
def test_draws_of_an_example_are_independent():
    """Pairs of draws, in cells of the shards that they come from."""
    model, steps = rebuilt("tree: own", 3, num_sampled=20), 200
    masses = np.add.reduceat(probabilities(model), [0, 200, 400], axis=1)
    pairs, expected = np.zeros([2, 3, 3])
    for values in samples(model, np.full([BATCH, 1], -1), steps):
        owner = values[0] // 200
        np.add.at(pairs, (owner[:, ::2], owner[:, 1::2]), 1)
        expected += 10 * np.einsum("bi,bj->ij", masses, masses)
    assert_counts_are_expected(pairs, expected)


@pytest.mark.slow
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("form", ["tree: projected pool", "tree: own", "tree: head"])
def test_trees_follow_the_training_step_by_step(form, normalize):
    model = model_of(form, 3, normalize=normalize)
    first, last = fit(model, 60), fit(model, 60)
    assert last < first
    head = model.layers[-1]
    assert head.sampler.health(head)["built_at"] == 0
    head.sampler.prepare(head)
    assert [int(one) for one in state(model, "num_stale")] == [0, 0, 0]
    before = state(model, "sums")
    head.sampler.rebuild(head)
    for sums, anew in zip(before, state(model, "sums"), strict=True):
        np.testing.assert_array_equal(sums, anew)


def test_the_projection_equals_that_of_one_tree():
    one, sharded = rebuilt("tree: projected own", 1), rebuilt("tree: projected own", 3)
    for projection in state(sharded, "projection"):
        np.testing.assert_array_equal(projection, state(one, "projection")[0])
    np.testing.assert_array_equal(np.concatenate(state(sharded, "rows")).shape, [N, 3])


@pytest.mark.slow
def test_counts_are_exact_if_sums_are_out_of_date():
    model = rebuilt("tree: own", 3)
    head = model.layers[-1]
    head.embeddings_1.assign(2 * head.embeddings_1[::-1])
    head.sampler.prepare = lambda layer: None
    drawn, expected = np.zeros([2, BATCH, N])
    for ids, true_counts, _ in samples(model, ALL, 100):
        np.testing.assert_allclose(true_counts[:, 1:].sum(axis=1), M, rtol=1e-4)
        np.add.at(drawn, (np.arange(BATCH)[:, None], ids), 1)
        expected += true_counts[:, 1:]
    assert_counts_are_expected(drawn, expected)


@pytest.mark.parametrize("where", ["rows", "features"])
def test_values_that_are_not_finite_raise_an_error_in_the_step(where):
    model = rebuilt("tree: own", 3)
    head, features = model.layers[-1], FEATURES.copy()
    if where == "features":
        features[2, 1] = np.nan
    else:
        head.embeddings_2.assign(tf.fill(head.embeddings_2.shape, np.inf))
    with pytest.raises(tf.errors.InvalidArgumentError, match="finite"):
        head.sampler.sample(tf.constant(features), tf.constant(ALL[:, :1]), head)
