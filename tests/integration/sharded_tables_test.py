"""`LSHSampler` with the classes in shards: tables of each, and draws of all of them."""

import numpy as np
import pytest
import tensorflow as tf

from tests.integration.sharded_models import (
    BATCH,
    EACH_COUNT,
    FEATURES,
    FORMS,
    M,
    N,
    assert_counts_are_expected,
    fit,
    model_of,
    rebuilt,
    samples,
    state,
)
from tests.reference import lsh_tables
from tests.slow import slow_but
from tf_largeout.papers.lsh.hash_ops import lsh_hash

pytestmark = pytest.mark.portable

NONE, ALL = np.full([BATCH, 1], -1), np.tile(np.arange(-1, N), (BATCH, 1))


def buckets(model):
    """Returns the classes of each bucket of each table, as lists."""
    first, found = 0, {}
    for offsets, ids in zip(
        state(model, "table_offsets"), state(model, "table_ids"), strict=True
    ):
        for table, row in enumerate(offsets.astype(int)):
            for bucket in range(len(row) - 1):
                classes = ids[table, row[bucket] : row[bucket + 1]].astype(int) + first
                found.setdefault((table, bucket), []).extend(classes.tolist())
        first += ids.shape[1]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "form, num_shards",
    [("lsh: pool", 2), ("lsh: pool", 3), ("lsh: union", 7)],
)
def test_tables_of_shards_contain_all_classes(form, num_shards):
    one, sharded = rebuilt(form, 1), rebuilt(form, num_shards)
    assert buckets(sharded) == buckets(one)
    healths = [m.layers[-1].sampler.health(m.layers[-1]) for m in (one, sharded)]
    assert healths[0] == pytest.approx(healths[1]) and healths[1]["fresh_share"] == 1


def entries_of_each_class(model):
    """In how many of the buckets that the batch asks for each class stands."""
    head = model.layers[-1]
    vectors = np.concatenate([FEATURES, head.class_embeddings()])
    functions = tf.constant(state(model, "hash_functions")[0])
    codes = lsh_hash(vectors, functions, "simhash", 4, 50, 4, 8).numpy()
    asked, rows = codes[:BATCH], codes[BATCH:]
    return (asked[:, np.newaxis] == rows).sum(axis=(0, 2))


@pytest.mark.slow
@EACH_COUNT
def test_pools_are_drawn_from_the_entries_of_all_shards(num_shards):
    model, steps = rebuilt("lsh: pool", num_shards, rebuild_every=10_000), 400
    model.layers[-1].sampler.prepare = lambda layer: None
    drawn = np.zeros(N)
    for pool, _, _ in samples(model, NONE, steps):
        np.add.at(drawn, pool, 1)
    entries, num_uniform = entries_of_each_class(model), M // 8
    shares = num_uniform / N + (M - num_uniform) * entries / entries.sum()
    assert_counts_are_expected(drawn, steps * shares)


def collisions_of(form, model, labels):
    """Returns the expected number of queries in the bucket of each of the `labels`."""
    rows = model.layers[-1].class_embeddings().numpy()[labels]
    queries = [np.tile(rows, [BATCH, 1])] + [FEATURES] * (form == "lsh: pool of both")
    num_hashes = FORMS[form][1]["num_hashes"]
    return lsh_tables.collisions(np.concatenate(queries), rows, num_hashes)


@pytest.mark.parametrize(
    "form, num_shards",
    slow_but(
        [("lsh: pool of both", 3)],
        [
            ("lsh: pool", 2),
            ("lsh: pool of labels", 3),
            ("lsh: pool of both", 3),
            ("lsh: pool", 7),
        ],
    ),
)
def test_counts_of_a_pool_equal_those_of_one_shard(form, num_shards):
    labels = ALL if form == "lsh: pool" else ALL[:, 1:30]
    one, sharded = (rebuilt(form, count) for count in (1, num_shards))
    (expected,), (found,) = samples(one, labels, 1), samples(sharded, labels, 1)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)
    if form == "lsh: pool":
        np.testing.assert_allclose(found[2], found[1][0, 1:][found[0]], rtol=1e-5)
    else:
        # What an eighth of uniform draws leaves is proportional to the exact collisions.
        rest = (found[1][0] - M // 8 / N) / collisions_of(form, sharded, labels[0])
        np.testing.assert_allclose(rest, rest.mean(), rtol=1e-5)
    assert found[0].shape == (M,) and len(set(found[0] // (N // num_shards))) > 1


@pytest.mark.slow
@pytest.mark.parametrize("query", ["embedding", "label"])
def test_counts_of_a_pool_match_the_mean_over_hash_functions(query):
    """As the same test in one shard: narrow vectors would have dependent hashes."""
    model = model_of(
        "lsh: pool", 3, query=query, num_tables=60, rebuild_every=1, rebuild_growth=1.0
    )
    labels = ALL if query == "embedding" else ALL[:, 1:30]
    drawn, expected = np.zeros([2, labels.shape[1]])
    for pool, true_counts, _ in samples(model, labels, 400):
        counts = np.bincount(pool, minlength=N)
        drawn += counts[labels[0]] * (labels[0] >= 0)
        expected += true_counts[0] * (labels[0] >= 0)
    often = expected > 20
    assert np.all(np.abs(drawn - expected)[often] < 6 * np.sqrt(2 * expected[often]))
    assert drawn.sum() == pytest.approx(expected.sum(), rel=0.05)


@pytest.mark.parametrize(
    "form, num_shards",
    slow_but(
        [("lsh: frequent", 3), ("lsh: walk of labels", 3)],
        [("lsh: walk", 2), ("lsh: frequent", 3), ("lsh: walk of labels", 3), ("lsh: walk", 7)],
    ),
)
def test_each_example_has_distinct_candidates_without_its_labels(form, num_shards):
    labels = np.stack([np.arange(BATCH), np.arange(BATCH) + 300], axis=1)
    (values,) = samples(rebuilt(form, num_shards), labels, 1)
    for row, own in zip(values[0], labels, strict=True):
        assert len(set(row)) == M and row.min() >= 0 and row.max() < N
        assert not set(row) & set(own)
    np.testing.assert_array_equal(values[2], 1)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lsh: walk", "lsh: frequent", "lsh: other hashes"])
def test_found_classes_are_as_close_as_in_one_shard(form):
    closeness = []
    for count in (1, 3):
        model = rebuilt(form, count)
        head = model.layers[-1]
        logits = FEATURES @ head.class_embeddings().numpy().T
        ids = np.concatenate(
            [np.broadcast_to(v[0], [BATCH, M]) for v in samples(model, NONE, 9)]
        )
        closeness.append(np.take_along_axis(np.tile(logits, [9, 1]), ids, 1).mean())
    assert closeness[1] > 0.9 * closeness[0] > 0


@EACH_COUNT
def test_a_head_of_all_classes_has_the_best(num_shards):
    model = rebuilt("lsh: head", num_shards, num_hashes=1, num_sampled=N - 1)
    head = model.layers[-1]
    found = head.sampler.search(FEATURES, tf.constant(NONE), head)
    scores = np.sort(head.class_matrix.dots(FEATURES, found).numpy())[:, ::-1]
    best, _ = head.top_k(FEATURES, 8)
    assert np.mean(np.isclose(scores, best, rtol=1e-4)) > 0.9


@pytest.mark.slow
def test_a_head_starts_by_the_rule_of_one_shard():
    """Three times as late as the earliest step, 100, as all labels are rare."""
    model = model_of("lsh: head", 3, start_step=None)
    fit(model, 299)
    head = model.layers[-1]
    assert head.sampler.start.started_at() == -1
    assert [one.tolist() for one in state(model, "rebuild_state")] == [[0, 0]] * 3
    fit(model, 3, seed=1)
    assert head.sampler.start.started_at() == 300
    assert [one.tolist() for one in state(model, "rebuild_state")] == [[2, 50]] * 3


@pytest.mark.slow
def test_only_the_shard_with_replaced_rows_is_rebuilt():
    model = model_of("lsh: pool", 3, rebuild_every=5, rebuild_growth=1e6)
    fit(model, 10)
    head, before = model.layers[-1], state(model, "table_ids")
    head.embeddings_1.assign(-head.embeddings_1)
    fit(model, 6)
    changed = [np.any(a != b) for a, b in zip(before, state(model, "table_ids"), strict=True)]
    assert changed == [False, True, False]


def test_a_batch_without_labels_gives_uniform_draws():
    (values,) = samples(rebuilt("lsh: pool of labels", 3), NONE, 1)
    assert len(np.unique(values[0])) == M
    np.testing.assert_allclose(values[2], M / N)
