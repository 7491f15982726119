"""`HashTables` of a variable, without a layer or sampler."""

import numpy as np
import pytest
import tensorflow as tf

from tests.reference import hashes, lsh_tables
from tests.search.rows import (
    DIM,
    NUM_ROWS,
    QUERIES,
    RANDOM,
    ROWS,
    add_weight,
    brute_force,
    kept_weights,
    recall,
)
from tf_largeout.papers.lsh.hash_tables import HASHES, HashTables, health_of, most_bits

pytestmark = pytest.mark.portable

SEED, NO_ROWS = np.array([1, 2]), np.full([len(QUERIES), 1], -1)
every_kind = pytest.mark.parametrize("kind", HASHES)
# Of equal norm, so that the smallest angle has the highest score.
UNIT_ROWS = (ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)).astype("float32")


def built(kind="simhash", num_hashes=4, num_tables=40, make_weight=add_weight):
    tables = HashTables(kind, num_hashes, num_tables)
    tables.build(NUM_ROWS, DIM, make_weight)
    return tables


def rebuilt(rows=UNIT_ROWS, seed=SEED, **kwargs):
    tables = built(**kwargs)
    tables.rebuild(tf.Variable(rows), seed)
    return tables


def met_most_often(tables, num_found=300):
    codes = tables.codes(QUERIES)
    return tables.query(codes, NO_ROWS, "frequent", num_found, 20_000)[0].numpy()


def test_all_buckets_are_empty_before_the_first_rebuild():
    tables = built()
    np.testing.assert_array_equal(met_most_often(tables), -1)
    assert health_of([tables])["empty_bucket_share"] == 1


@pytest.mark.parametrize("kind, num_hashes", [("simhash", 4), ("wta", 1), ("dwta", 1)])
def test_the_rows_found_most_often_include_the_nearest(kind, num_hashes):
    # A fifth of the rows contains two thirds of the best; by chance it would be a fifth.
    found = met_most_often(rebuilt(kind=kind, num_hashes=num_hashes))
    assert found.shape == (len(QUERIES), 300)
    assert recall(found, brute_force(UNIT_ROWS)[0]) > 0.65


@pytest.mark.parametrize("bin_size, num_hashes", [(2, 7), (4, 3), (16, 1)])
def test_tables_of_each_bin_size_are_those_of_the_reference(bin_size, num_hashes):
    rows = np.random.default_rng(7).normal(size=[NUM_ROWS, 24]).astype("float32")
    tables = HashTables("wta", num_hashes, 5, bin_size)
    tables.build(NUM_ROWS, 24, add_weight)
    tables.rebuild(tf.Variable(rows), SEED)
    state = tables.arrays()
    coordinates = state["hash_functions"].reshape(num_hashes, 5, bin_size).swapaxes(0, 1)
    codes = hashes.joined(hashes.wta_values(rows, coordinates), bin_size)
    expected = lsh_tables.tables(codes.T, bin_size**num_hashes)
    np.testing.assert_array_equal(state["table_offsets"], expected[0])
    np.testing.assert_array_equal(state["table_ids"], expected[1])
    found, _ = tables.query(tables.codes(rows[:4]), NO_ROWS[:4], "frequent", 9, 10**5)
    for code, ids in zip(codes[:4], found.numpy(), strict=True):
        most = sorted(lsh_tables.met(codes.T, code).items(), key=lambda met: (-met[1], met[0]))
        assert set(ids) == {row for row, _ in most[:9]}


@every_kind
def test_every_row_is_in_its_own_buckets(kind):
    tables, rows = built(kind, num_hashes=2), tf.Variable(ROWS)
    tables.rebuild(rows, SEED)
    assert tables.fresh_share(rows) == 1 and not tables.are_stale(rows)
    found, _ = tables.query(tables.codes(ROWS[:9]), np.full([9, 1], -1), "frequent", 1, 10**5)
    np.testing.assert_array_equal(found[:, 0], np.arange(9))


@every_kind
def test_a_rebuild_follows_rows_that_were_replaced(kind):
    tables, rows = built(kind), tf.Variable(ROWS)
    tables.rebuild(rows, SEED)
    rows.assign(RANDOM.normal(size=ROWS.shape))
    assert tables.are_stale(rows)
    tables.rebuild(rows, SEED)
    assert tables.fresh_share(rows) == 1


def test_hash_functions_depend_only_on_the_seed():
    codes = [rebuilt(seed=seed).codes(QUERIES).numpy() for seed in ([1, 2], [1, 2], [1, 3])]
    np.testing.assert_array_equal(codes[0], codes[1])
    assert not np.array_equal(codes[0], codes[2])


@pytest.mark.parametrize("select", ["walk", "frequent"])
def test_excluded_rows_are_not_found_and_draws_fill_up(select):
    tables = rebuilt(num_hashes=7, num_tables=1)
    excluded = brute_force(UNIT_ROWS)[0]
    codes = tables.codes(QUERIES)
    ids, num_filled = tables.query(codes, excluded, select, 50, 400, seed=SEED)
    for row, num, of_query in zip(ids.numpy(), num_filled.numpy(), excluded, strict=True):
        assert len(set(row)) == 50 and not set(row) & set(of_query) and 0 < num < 50


def test_draws_take_each_entry_with_the_same_probability():
    tables = rebuilt(num_tables=10)
    codes = tables.codes(QUERIES)
    ids, num_entries = tables.draw(codes, SEED, 200_000)
    own_codes = tables.codes(UNIT_ROWS).numpy()
    entries = np.sum(own_codes[None] == codes.numpy()[:, None], axis=(0, 2))
    assert num_entries == entries.sum()
    expected = 200_000 * entries / entries.sum()
    counted = np.bincount(ids, minlength=NUM_ROWS)
    assert np.all(np.abs(counted - expected) <= 5.5 * np.sqrt(expected + 1))


def test_vectors_collide_with_the_probability_of_simhash():
    tables = built(num_hashes=2, num_tables=8000)
    tables.rebuild(tf.Variable(ROWS), SEED)
    angles = np.array([0.0, np.pi / 3, np.pi])
    probability = tables.collision_probability(np.cos(angles)).numpy()
    np.testing.assert_allclose(probability, (1 - angles / np.pi) ** 2, atol=1e-3)
    pair = tables.codes(np.eye(2, DIM)).numpy()  # at right angles
    assert np.mean(pair[0] == pair[1]) == pytest.approx(0.25, abs=0.03)


def test_the_weights_are_the_whole_state():
    weights, others = [], []
    tables = rebuilt(make_weight=kept_weights(weights))
    again = built(make_weight=kept_weights(others))
    for weight, value in zip(others, weights, strict=True):
        weight.assign(value)
    np.testing.assert_array_equal(met_most_often(again), met_most_often(tables))
    assert health_of([again]) == health_of([tables])
    names = [weight.name for weight in weights]
    assert names == ["hash_functions", "table_offsets", "table_ids"]


@every_kind
@pytest.mark.parametrize("num_hashes", [1, 30])
def test_no_table_has_more_buckets_than_a_tenth_of_the_rows(kind, num_hashes):
    health = health_of([rebuilt(kind=kind, num_hashes=num_hashes, num_tables=3)])
    assert health["num_buckets"] <= 2 ** most_bits(NUM_ROWS) <= NUM_ROWS / 10
    assert 0 < health["median_bucket_of_a_class"] <= health["largest_bucket"] <= NUM_ROWS


def test_tables_beyond_the_memory_raise_an_error():
    with pytest.raises(ValueError, match="over 1500 rows take .*GiB.*num_tables=1000000000"):
        built(num_tables=10**9)
