"""All samplers that search, with the classes in shards: counts, learning and saving."""

import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests import harness
from tests.integration.sharded_models import (
    BATCH,
    CLASSES,
    DIM,
    FEATURES,
    FORMS,
    M,
    N,
    assert_counts_are_expected,
    fit,
    forms_of,
    model_of,
    read_into,
    rebuilt,
    recall,
    sampler_of,
    samples,
)
from tests.slow import slow_but

pytestmark = pytest.mark.portable

ALL = np.tile(np.arange(-1, N), (BATCH, 1))


@pytest.mark.parametrize(
    "form, num_shards, is_built",
    slow_but(
        [("tree: own", 2, True)],
        [
            ("tree: own", 2, True),
            ("tree: projected own", 3, True),
            ("tree: own", 7, True),
            ("lists: draws", 2, True),
            ("lists: draws", 3, True),
            ("lists: draws", 3, False),
        ],
    ),
)
def test_reported_counts_match_the_draws(form, num_shards, is_built):
    model = (rebuilt if is_built else model_of)(form, num_shards)
    if not is_built:
        model.layers[-1].sampler.prepare = lambda layer: None  # no lists: all alike
    elif form == "lists: draws":
        fit(model, 60)
    drawn, expected = np.zeros([2, BATCH, N])
    for ids, true_counts, counts in samples(model, ALL, 150):
        of_classes = true_counts[:, 1:]
        of_drawn = np.take_along_axis(of_classes, ids, axis=1)
        np.testing.assert_allclose(counts, of_drawn, rtol=1e-5)
        np.testing.assert_allclose(of_classes.sum(axis=1), M, rtol=1e-4)
        np.add.at(drawn, (np.arange(BATCH)[:, None], ids), 1)
        expected += of_classes
    assert_counts_are_expected(drawn, expected, num_fixed=BATCH)
    if not is_built:
        np.testing.assert_allclose(expected, 150 * M / N, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "form, num_shards, steps, arguments, least",
    [
        ("lists: head", 3, 450, {}, 0.5),
        ("lists: few", 7, 450, {}, 0.5),
        ("lsh: head", 3, 200, {"num_sampled": 80, "rebuild_growth": 1.0}, 0.3),
        ("lsh: head", 7, 200, {"num_sampled": 80, "rebuild_growth": 1.0}, 0.3),
    ],
)
def test_recall_and_precision_are_close_to_those_of_one_shard(
    form, num_shards, steps, arguments, least
):
    found = []
    for count in (1, num_shards):
        model = model_of(form, count, rate=0.05, **arguments)
        fit(model, steps)
        _, precision = model.evaluate(CLASSES, np.arange(N), verbose=0)
        found.append((recall(model), precision))
    (one_recall, one_precision), (other_recall, other_precision) = found
    assert other_recall > one_recall - 0.05 and one_recall > least
    assert abs(other_precision - one_precision) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [
        "lists: draws",
        "lists: drawn head",
        "lsh: pool",
        "lsh: head",
        "lsh: other hashes",
        "lsh: walk",
    ],
)
def test_each_form_learns_as_well_as_in_one_shard(form):
    precisions = []
    for count in (1, 3):
        model = model_of(form, count, rate=0.05)
        fit(model, 200)
        precisions.append(model.evaluate(CLASSES, np.arange(N), verbose=0)[1])
    assert precisions[1] > 0.7 * precisions[0] and precisions[0] > 10 / N
    head = model.layers[-1]
    assert head.sampler.health(head).get("uniform_fill_share", 0) < 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "form, before, after, arguments",
    [
        ("lists: head", 2, 50, {}),  # before the search starts; over a reassignment
        ("lists: head", 40, 50, {}),
        ("lsh: head", 10, 15, {"rebuild_every": 8}),  # over a rebuild
        ("lsh: pool", 10, 15, {"rebuild_every": 8}),
        ("tree: projected pool", 7, 9, {}),
        ("tree: own", 7, 9, {}),
    ],
)
def test_a_resumed_run_equals_an_uninterrupted_one(form, before, after, arguments, tmp_path):
    harness.assert_resumed_equals_uninterrupted(
        lambda: model_of(form, 3, **arguments),
        lambda model: fit(model, before, seed=1),
        lambda model: fit(model, after, seed=2),
        tmp_path,
    )


# Numbers of shards before and after, and what carries the weights.
OTHER_SHARDS = [
    (1, 3, "file"),
    (3, 2, "file"),
    (3, 1, "file"),
    (3, 3, "file"),
    (3, 2, "checkpoint"),
    (3, 3, "checkpoint"),
]
# Form, the number of `health` that tells a structure that is built, and its value without.
BUILT = [
    ("lists: head", "fitted_at", -1),
    ("lsh: head", "fresh_share", 0),
    ("tree: own", "built_at", -1),
]


@pytest.mark.slow
@pytest.mark.parametrize("before, after, kind", slow_but([(3, 3, "file")], OTHER_SHARDS))
@pytest.mark.parametrize("form, name, empty", slow_but(BUILT[2:], BUILT))
def test_another_number_of_shards_continues_with_a_new_structure(
    form, name, empty, before, after, kind, tmp_path, caplog
):
    model, other = model_of(form, before), model_of(form, after)
    fit(model, 10)
    read_into(other, model, tmp_path, kind)
    said = "another number of shards" in caplog.text
    assert said == (kind == "file" and before != after)
    old, new = model.layers[-1], other.layers[-1]
    health, expected = new.sampler.health(new), old.sampler.health(old)
    assert health.get("started_at") == expected.get("started_at")
    assert health[name] == (expected[name] if before == after else empty)
    if form == "lists: head" and before == after:
        assert recall(other) == recall(model)
    new.sampler.prepare(new)  # as the next step does
    assert new.sampler.health(new)[name] > empty
    if form == "lists: head" and before != after:
        assert recall(other) > 0.5
    elif form == "lsh: head" and before != after:
        assert new.sampler.health(new)["fresh_share"] == 1


@pytest.mark.parametrize("batch", slow_but([16], [0, 1, 16]))
@pytest.mark.parametrize(
    "form",
    slow_but(
        [
            "lists: head",
            "lsh: pool of labels",
            "lsh: union",
            "lsh: walk",
            "lsh: head of labels",
        ],
        FORMS,
    ),
)
def test_few_classes_in_many_shards_are_supported(form, batch):
    given, arguments = FORMS[form][1], {}
    if form in forms_of("lsh"):
        one = {"num_hashes": 1}
        arguments = {"tables": {**given["tables"], **one}} if "tables" in given else one
    if "start_step" in given:
        arguments["start_step"] = 0
    sampler = sampler_of(form, 12, **arguments)
    head = tflo.layers.LargeOutput(20, sampler, num_shards=7)
    head.build((None, DIM))
    labels = tf.zeros([batch, 1], tf.int64)
    values = tf.nest.flatten(sampler.sample(tf.constant(FEATURES[:batch]), labels, head))
    ids = values[0].numpy()
    assert ids.max(initial=0) < 20 and ids.min(initial=0) >= -1
    if form == "lists: head" and batch:  # more than a shard has
        assert all(len(set(row)) == 8 and row.min() >= 0 for row in ids)
