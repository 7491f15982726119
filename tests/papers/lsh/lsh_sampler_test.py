"""Draws of all forms of `LSHSampler`."""

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.papers.lsh.lsh_forms import (
    BATCH,
    DIM,
    EMBEDDINGS,
    FEATURES,
    FORMS,
    LABELS,
    RNG,
    M,
    N,
    every_form,
    every_own_form,
    fit,
    head_of,
    lsh_sampler,
    make,
    model_of,
    own_forms,
    sample,
)
from tests.reference import lsh_tables
from tests.slow import slow_but
from tf_largeout import samplers
from tf_largeout.papers.lsh.hash_ops import lsh_hash
from tf_largeout.variables import replicas

BAD_NUMBERS = [0.0, np.nan, np.inf, 1e38]


@every_own_form
def test_each_example_has_distinct_candidates_without_its_labels(form):
    values = sample(head_of(make(form)))
    for row, labels in zip(values.sampled_candidates.numpy(), LABELS, strict=True):
        assert len(set(row.tolist())) == M
        assert not set(row.tolist()) & set(labels.tolist())
        assert np.all((row >= 0) & (row < N))
    for counts in values[1:]:
        np.testing.assert_array_equal(counts, 1)


@pytest.mark.parametrize("hash", ["simhash", "dwta"])
@pytest.mark.parametrize("select", ["walk", "frequent"])
def test_drawn_classes_are_closer_to_the_query_than_others(hash, select):
    form = {"hash": hash, "form": select, "num_hashes": 3}
    head = head_of(make(form, num_tables=20))
    ids = sample(head).sampled_candidates.numpy()
    logits = FEATURES @ EMBEDDINGS.T
    drawn = np.take_along_axis(logits, ids, 1)
    assert drawn.mean() > 0.3 * logits.std()


def test_the_head_has_the_best_of_the_classes_found_most_often():
    head = head_of(make({"num_hard": 6, "num_hashes": 1}, num_sampled=390))
    values = sample(head)
    logits = FEATURES @ EMBEDDINGS.T
    for row, labels in enumerate(LABELS):
        logits[row, labels[labels >= 0]] = -np.inf
    best = np.argsort(-logits, axis=1)[:, :6]
    found = [
        np.isin(b, ids).mean() for b, ids in zip(best, values.head[0].numpy(), strict=True)
    ]
    assert np.mean(found) > 0.95
    assert values.tail.sampled_candidates.shape == (384,)


@pytest.mark.parametrize("query", ["both", pytest.param("label", marks=pytest.mark.slow)])
def test_classes_are_found_by_how_often_they_occur_in_the_buckets_of_all_queries(query):
    sizes = {"num_hashes": 5, "num_tables": 10}
    head = head_of(make({"form": "frequent", "query": query}, num_sampled=100, **sizes))
    ids = sample(head).sampled_candidates.numpy()
    functions = head.sampler_hash_functions.value
    codes, asked = (
        lsh_hash(vectors, functions, "simhash", 5, 10, 5, 8).numpy()
        for vectors in (EMBEDDINGS, FEATURES)
    )
    for row, labels, own in zip(ids, LABELS, asked, strict=True):
        labels = labels[labels >= 0]
        queries = codes[labels].reshape(-1).tolist() + own.tolist() * (query == "both")
        met = lsh_tables.met(codes.T, queries)
        most = sorted(met.keys() - set(labels.tolist()), key=lambda c: (-met[c], c))[:100]
        assert set(row[: len(most)]) == set(most)


def test_fewer_candidates_than_hard_classes_are_padded():
    head = head_of(make({"num_hard": 20, "num_hashes": 12}, num_tables=1))
    ids = sample(head).head.sampled_candidates.numpy()
    assert (ids == -1).any() and ((ids >= -1) & (ids < N)).all()


# The mean is over hash functions, as each layer has other ones.
@pytest.mark.parametrize(
    "query, num_hashes, zeros",
    slow_but(
        [("embedding", 5, True)],
        [
            (query, *hashes)
            for query in ["embedding", "label", "both"]
            for hashes in [(2, False), (5, False), (5, True)]
        ],
    ),
)
def test_reported_counts_of_a_simhash_pool_match_the_draws(query, num_hashes, zeros):
    # Narrow vectors have dependent hashes: the projections are orthogonal.
    basis = RNG.normal(size=[4, 64])
    embeddings, features = (
        (RNG.normal(size=[n, 4]) @ basis).astype("float32") for n in (N, BATCH)
    )
    if zeros:  # Zero vectors share a bucket, like classes before their first step.
        embeddings[::3], features[::4] = 0, 0
    form = {"form": "pool", "query": query, "num_hashes": num_hashes, "num_tables": 60}
    head = head_of(make(form), embeddings)
    everything = np.full([BATCH, N], -1)
    everything[0] = np.arange(N)
    labels = tf.constant(everything if query == "embedding" else everything[:, :20])

    @tf.function(autograph=False)
    def draw(seed):
        replicas.local_variable(head.seed_state).assign([seed, 0])
        replicas.local_variable(head.sampler_rebuild_state).assign([0, 0])
        return head.sampler.sample(tf.constant(features), labels, head)

    trials = 400
    off, reported = np.zeros([trials, labels.shape[1]]), []
    for trial in range(trials):
        values = draw(np.int64(trial))
        true_count = values.true_expected_count.numpy()[0]
        counted = np.bincount(values.sampled_candidates, minlength=N)[: len(true_count)]
        off[trial] = counted - true_count
        reported.append(true_count)
        of_class = dict(enumerate(true_count))
        for c, count in zip(*(v.numpy() for v in values[::2]), strict=True):
            assert count == pytest.approx(of_class.get(c, count), rel=1e-5)
    expected = np.sum(reported, axis=0)
    often = expected > 20
    sigma = np.sqrt(np.maximum(off.var(0) * trials, expected))
    assert np.abs(off.sum(0) / sigma)[often].max() < 5
    if query == "embedding":
        assert expected.sum() / trials == pytest.approx(M, rel=0.03)
        assert expected.max() > 2 * expected.min()


def test_a_pool_without_queries_is_uniform():
    head = head_of(make({"form": "pool", "query": "label"}))
    values = sample(head, labels=np.full([BATCH, 2], -1))
    assert len(np.unique(values.sampled_candidates)) == M
    np.testing.assert_allclose(values.sampled_expected_count, M / N)
    np.testing.assert_array_equal(values.true_expected_count, 1)


def test_a_union_is_distinct_and_shared():
    values = sample(head_of(make({"form": "pool", "hash": "dwta"})))
    assert len(np.unique(values.sampled_candidates)) == M
    np.testing.assert_array_equal(values.sampled_expected_count, 1)


@every_form
def test_draws_from_one_giant_bucket_are_distinct(form):
    head = head_of(make(form), np.ones([3000, DIM], "float32"))
    values = sample(head)
    health = head.sampler.health(head)
    assert health["largest_bucket"] == 3000
    for part in list(values) if form.get("num_hard") else [values]:
        assert np.isfinite(part.sampled_expected_count).all()


# Each number with one form, and each form with one number.
@pytest.mark.parametrize(
    "name, value",
    slow_but(
        [*(("embedding", value) for value in BAD_NUMBERS), *((name, np.inf) for name in FORMS)],
        itertools.product(FORMS, BAD_NUMBERS),
    ),
)
def test_zero_vectors_and_nan_get_valid_classes(name, value):
    form = FORMS[name]
    embeddings, features = EMBEDDINGS.copy(), FEATURES.copy()
    embeddings[5], embeddings[6, 2], features[0] = value, value, value
    values = sample(head_of(make(form), embeddings), features)
    parts = list(values) if form.get("num_hard") else [values]
    for part in parts:
        ids = part.sampled_candidates.numpy()
        assert np.all((ids >= -1) & (ids < N))
    if value == 0:
        assert all(np.isfinite(part.sampled_expected_count).all() for part in parts)


@every_own_form
def test_examples_with_every_class_as_label_have_no_negatives(form):
    labels = np.tile(np.arange(15), (BATCH, 1))
    head = head_of(make(form), EMBEDDINGS[:15])
    np.testing.assert_array_equal(sample(head, labels=labels).sampled_candidates, -1)


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(["embedding"], own_forms))
def test_models_train_on_examples_with_every_class_as_label(name):
    model = model_of(own_forms[name], num_classes=15)
    model.run_eagerly = True
    fit(model, 2, FEATURES, np.tile(np.arange(15), (BATCH, 1)))


def test_health_reports_buckets_and_fill():
    head = head_of(make({"form": "walk", "num_hashes": 5, "num_tables": 1}))
    health = head.sampler.health(head)
    assert health["fresh_share"] == 0
    sample(head)
    health = head.sampler.health(head)
    assert health["mean_bucket"] == N / 32
    assert health["num_buckets"] == 32
    assert health["mean_bucket"] <= health["median_bucket_of_a_class"]
    assert health["median_bucket_of_a_class"] <= health["largest_bucket"]
    assert 0 < health["uniform_fill_share"] < 1
    json.dumps(health)


def test_memory_stays_within_a_tenth_of_the_ids():
    for num_classes, num_hashes in ((400, 30), (100, 2), (5000, 9)):
        form = {"num_hashes": num_hashes, "num_tables": 3, "form": "walk"}
        sampler = make(form, num_sampled=8)
        head = head_of(sampler, np.ones([num_classes, 2], "float32"))
        size = head.sampler_table_offsets.shape[1] + num_classes
        assert 3 * size <= 1.1 * 3 * num_classes + 3


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"query": "labels"}, r"`query` must be one of .*'label', 'both'\].*'labels'"),
        ({"hash": "minhash"}, "`hash` must be one of .*simhash.*'minhash'"),
        ({"num_hashes": 0}, "num_hashes=0"),
        ({"num_tables": 2.5}, "num_tables=2.5"),
        ({"form": "pool", "num_hard": 3}, "form='pool', num_hard=3"),
        ({"rebuild_every": 0}, "rebuild_every=0"),
        ({"bin_size": 12}, "`bin_size` must be a power of two .* bin_size=12 .*8 or 16"),
        ({"bin_size": 1}, "bin_size=1 "),
        ({"form": "all"}, r"`form` must be one of \['pool', 'walk', 'frequent'\].*'all'"),
        ({"form": "walk", "num_hard": 3}, "form='walk', num_hard=3"),
        ({"num_hard": 3, "start_step": 2**70}, f"`start_step` must be .* start_step={2**70}"),
    ],
)
def test_bad_arguments_raise_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(arguments)


@pytest.mark.parametrize("form", slow_but([None], ["pool", None]))
def test_samples_without_known_counts_need_candidates_per_example(form):
    with pytest.raises(ValueError, match='at most 5 for .*num_hashes=6.*form="walk"'):
        head_of(make({"form": form}, num_hashes=6))
    with pytest.raises(ValueError, match='num_sampled=401, num_classes=400.*form="walk"'):
        head_of(make({"form": form}, num_sampled=401))
    head_of(make({"form": "pool", "hash": "dwta"}, num_hashes=6))


@pytest.mark.parametrize(
    "arguments, is_pool",
    [
        ({}, True),
        ({"query": "label"}, True),
        ({"num_hashes": 5}, True),
        ({"num_hashes": 6, "form": "walk"}, False),
        ({"num_sampled": 401, "form": "walk"}, False),
        ({"num_hard": 3}, False),
        ({"form": "frequent"}, False),
        ({"hash": "dwta"}, False),
    ],
)
def test_the_default_is_a_shared_pool_if_counts_are_known(arguments, is_pool):
    head = head_of(lsh_sampler(**({"num_sampled": M, "num_tables": 7} | arguments)))
    drawn = sample(head)
    ids = drawn.head.sampled_candidates if "num_hard" in arguments else drawn.sampled_candidates
    assert ids.shape.rank == (1 if is_pool else 2)


def test_unknown_arguments_raise_an_error():
    with pytest.raises(TypeError, match="num_table"):
        samplers.LSHSampler(9, num_table=3)
    for tables in ({"num_table": 3}, 3):
        with pytest.raises(ValueError, match=r"HashTableConfig.*num_tables.*Received: tables="):
            samplers.LSHSampler(9, tables=tables)


def test_tables_beyond_the_memory_raise_an_error():
    with pytest.raises(ValueError, match="GiB, and this machine has .*num_tables=1000000000"):
        head_of(make({}, num_tables=10**9))
