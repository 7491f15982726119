"""`KernelTreeSampler` with the classes in shards: it draws as from one tree."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import harness
from tests.integration.sharded_models import (
    BATCH,
    DIM,
    FEATURES,
    OTHER_SHARDS,
    M,
    N,
    assert_counts_are_expected,
    fit,
    new_model,
    read_into,
    samples,
    state,
)
from tests.reference import kernel_tree as reference
from tests.slow import slow_but

pytestmark = pytest.mark.portable

FORMS = {
    "pool": {"leaf_size": 20},
    "projected pool": {"projection_dim": 3},
    "own": {"shared": False},
    "projected own": {"shared": False, "projection_dim": 3, "leaf_size": 9},
    "head": {"num_hard": 6},
}
ALL = np.tile(np.arange(-1, N), (BATCH, 1))


def model_of(form, num_shards, num_sampled=M, **kwargs):
    arguments = {"seed": 1, **FORMS[form], **kwargs}
    return new_model(num_shards, tflo.samplers.KernelTreeSampler(num_sampled, **arguments))


def rebuilt(form, num_shards, **kwargs):
    model = model_of(form, num_shards, **kwargs)
    model.layers[-1].sampler.rebuild(model.layers[-1])
    return model


def probabilities(model):
    """The q of the formula, by numpy in float64."""
    head = model.layers[-1]
    _, bias = head.class_matrix.as_products()
    projected = head.sampler.projection_dim is not None
    projection = state(model, "projection")[0] if projected else None
    rows = head.class_embeddings().numpy()
    return reference.probabilities(FEATURES, rows, bias.numpy(), 100.0, projection)


CASES = [("own", 2), ("pool", 3), ("projected own", 3), ("projected pool", 7), ("own", 7)]


@pytest.mark.parametrize("form, num_shards", slow_but([("projected own", 3)], CASES))
def test_the_probability_of_each_class_is_that_of_one_tree(form, num_shards):
    one, sharded = rebuilt(form, 1), rebuilt(form, num_shards)
    expected, found = (
        samples(model, ALL, 1)[0].true_expected_count[:, 1:] / M for model in (one, sharded)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
    q = probabilities(sharded)
    q = np.broadcast_to(q.mean(axis=0), q.shape) if "pool" in form else q
    np.testing.assert_allclose(found, q, rtol=2e-4)


@pytest.mark.parametrize(
    "form, num_shards",
    slow_but([("own", 2)], [("own", 2), ("projected own", 3), ("own", 7)]),
)
def test_reported_counts_are_those_of_the_draws(form, num_shards):
    model = rebuilt(form, num_shards)
    drawn, expected = np.zeros([2, BATCH, N])
    for ids, true_counts, counts in samples(model, ALL, 150):
        of_classes = true_counts[:, 1:]
        np.testing.assert_allclose(
            counts, np.take_along_axis(of_classes, ids, axis=1), rtol=1e-5
        )
        np.add.at(drawn, (np.arange(BATCH)[:, None], ids), 1)
        expected += of_classes
    assert_counts_are_expected(drawn, expected)
    for row, q in zip(drawn, probabilities(model), strict=True):
        assert abs(reference.chi_square_deviation(row, q)) < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "form, num_shards, num_sampled",
    [("pool", 2, M), ("projected pool", 3, M), ("pool", 3, 5), ("pool", 7, M)],
)
def test_reported_counts_are_those_of_pools(form, num_shards, num_sampled):
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
def test_draws_of_a_row_are_independent():
    """Pairs of draws, in cells of the shards that they come from."""
    model, steps = rebuilt("own", 3, num_sampled=20), 200
    masses = np.add.reduceat(probabilities(model), [0, 200, 400], axis=1)
    pairs, expected = np.zeros([2, 3, 3])
    for values in samples(model, np.full([BATCH, 1], -1), steps):
        owner = values[0] // 200
        np.add.at(pairs, (owner[:, ::2], owner[:, 1::2]), 1)
        expected += 10 * np.einsum("bi,bj->ij", masses, masses)
    assert_counts_are_expected(pairs, expected)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["projected pool", "own", "head"])
def test_trees_follow_the_training_step_by_step(form):
    model = model_of(form, 3)
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


def test_the_projection_is_that_of_one_tree():
    one, sharded = rebuilt("projected own", 1), rebuilt("projected own", 3)
    for projection in state(sharded, "projection"):
        np.testing.assert_array_equal(projection, state(one, "projection")[0])
    np.testing.assert_array_equal(np.concatenate(state(sharded, "rows")).shape, [N, 3])


def test_counts_are_exact_where_sums_are_out_of_date():
    model = rebuilt("own", 3)
    head = model.layers[-1]
    head.embeddings_1.assign(2 * head.embeddings_1[::-1])
    head.sampler.prepare = lambda layer: None
    drawn, expected = np.zeros([2, BATCH, N])
    for ids, true_counts, _ in samples(model, ALL, 100):
        np.testing.assert_allclose(true_counts[:, 1:].sum(axis=1), M, rtol=1e-4)
        np.add.at(drawn, (np.arange(BATCH)[:, None], ids), 1)
        expected += true_counts[:, 1:]
    assert_counts_are_expected(drawn, expected)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["projected pool", "own"])
def test_a_resumed_run_equals_an_uninterrupted_one(form, tmp_path):
    harness.assert_resumed_equals_uninterrupted(
        lambda: model_of(form, 3),
        lambda model: fit(model, 7, seed=1),
        lambda model: fit(model, 9, seed=2),
        tmp_path,
    )


@pytest.mark.parametrize("before, after, kind", slow_but([(3, 3, "file")], OTHER_SHARDS))
def test_another_number_of_shards_goes_on_with_new_trees(tmp_path, before, after, kind, caplog):
    model, other = model_of("own", before), model_of("own", after)
    fit(model, 10)
    read_into(other, model, tmp_path, kind)
    head = other.layers[-1]
    assert head.sampler.health(head)["built_at"] == (0 if before == after else -1)
    said = "another number of shards" in caplog.text
    assert said == (kind == "file" and before != after)
    head.sampler.prepare(head)  # as the next step does
    head.sampler.prepare = lambda layer: None
    counts = samples(other, ALL, 1)[0].true_expected_count[:, 1:]
    np.testing.assert_allclose(counts / M, probabilities(other), rtol=2e-4)


@pytest.mark.parametrize("where", ["rows", "features"])
def test_numbers_that_are_not_finite_are_an_error_of_the_step(where):
    model = rebuilt("own", 3)
    head, features = model.layers[-1], FEATURES.copy()
    if where == "features":
        features[2, 1] = np.nan
    else:
        head.embeddings_2.assign(tf.fill(head.embeddings_2.shape, np.inf))
    with pytest.raises(tf.errors.InvalidArgumentError, match="finite"):
        head.sampler.sample(tf.constant(features), tf.constant(ALL[:, :1]), head)


@pytest.mark.slow
@pytest.mark.parametrize("form, batch", list(itertools.product(FORMS, [0, 1, 30])))
def test_few_classes_and_batches_of_any_size(form, batch):
    sampler = tflo.samplers.KernelTreeSampler(9, **FORMS[form])
    head = tflo.layers.LargeOutput(12, sampler, num_shards=7)
    head.build((None, DIM))
    features = tf.ones([batch, DIM])
    values = sampler.sample(features, tf.zeros([batch, 1], tf.int64), head)
    ids = tf.nest.flatten(values)[0].numpy()
    shape = {"own": (batch, 9), "head": (batch, 6)}.get(form.split()[-1], (9,))
    assert ids.shape == shape and ids.max(initial=0) < 12
