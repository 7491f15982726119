"""Hash tables of all forms of `LSHSampler` during training."""

import numpy as np
import pytest
import tensorflow as tf

from tests import replicas
from tests.papers.lsh.lsh_forms import (
    DIM,
    EMBEDDINGS,
    FEATURES,
    FORMS,
    LABELS,
    RNG,
    M,
    N,
    fit,
    head_of,
    make,
    model_of,
    sample,
    state_of,
)
from tests.slow import slow_but


@pytest.mark.slow  # rebuild_schedule_test.py has the schedule
def test_training_rebuilds_by_the_schedule_and_learns():
    model = model_of({}, rebuild_every=2)
    losses = fit(model, 2)
    assert state_of(model.layers[-1]) == [6, 10]
    losses += fit(model, 3)
    assert state_of(model.layers[-1]) == [15, 17]
    assert losses[4] < losses[0]


@pytest.mark.slow
def test_two_fits_equal_one_run():
    one, other = (model_of({}, rebuild_every=2) for _ in range(2))
    fit(one, 4)
    fit(other, 1)
    fit(other, 3)
    for weight, same in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(weight, same, err_msg=weight.path)


def test_set_weights_restores_the_tables():
    model, other = model_of({}, rebuild_every=3), model_of({}, rebuild_every=3)
    model.run_eagerly = True
    fit(model, 2)
    other.set_weights(model.get_weights())
    ours, theirs = model.layers[-1], other.layers[-1]
    assert other.layers[-1].sampler.health(theirs) == ours.sampler.health(ours)
    np.testing.assert_array_equal(sample(ours)[0], sample(theirs)[0])


@pytest.mark.slow
def test_assigned_embeddings_are_detected_during_training():
    model = model_of({"num_hashes": 5}, rebuild_every=4, rebuild_growth=50.0)
    head = model.layers[-1]
    fit(model, 2)
    head.embeddings.assign(RNG.normal(size=[N, DIM]))
    assert head.sampler.health(head)["fresh_share"] < 0.09
    fit(model, 1)  # steps 6 to 8: asked at 8
    fit(model, 1)
    assert head.sampler.health(head)["fresh_share"] > 0.5


def test_a_manual_rebuild_is_immediate():
    head = head_of(make({}))
    sample(head)
    head.embeddings.assign(-EMBEDDINGS)
    assert head.sampler.health(head)["fresh_share"] < 0.1
    head.sampler.rebuild(head)
    assert head.sampler.health(head)["fresh_share"] == 1
    assert state_of(head) == [1, 52]


@pytest.mark.parametrize(
    "form",
    [
        FORMS["dwta"],
        FORMS["shared"],
        *(
            pytest.param(form, marks=pytest.mark.slow)
            for name, form in FORMS.items()
            if name not in ("dwta", "shared")
        ),
    ],
    ids=str,
)
def test_models_with_fewer_classes_than_samples_train_with_candidates_per_example(form):
    if form.get("form") == "pool" or form.get("num_hard"):
        with pytest.raises(ValueError, match=f"num_sampled={M}|{M - 6} distinct"):
            model_of(form, num_classes=15)
        return
    model = model_of(form, num_classes=15)
    model.run_eagerly = True
    fit(model, 2, FEATURES, LABELS % 15)


@pytest.mark.slow
def test_replicas_build_equal_tables():
    strategy = replicas.two_replicas()
    with strategy.scope():
        head = head_of(make({}, rebuild_every=2))

    @tf.function
    def step(rows):
        head.embeddings.assign(rows)
        strategy.run(lambda: sample(head))

    for _ in range(6):
        step(RNG.normal(size=[N, DIM]).astype("float32"))
    assert state_of(head)[0] == 6
    for weight in (head.sampler_table_ids, head.sampler_hash_functions):
        one, other = strategy.experimental_local_results(weight.value)
        np.testing.assert_array_equal(one, other)
    with strategy.scope():
        head.sampler.rebuild(head)
    one, other = strategy.experimental_local_results(head.sampler_table_ids.value)
    np.testing.assert_array_equal(one, other)
    assert head.sampler.health(head)["fresh_share"] == 1


@pytest.mark.parametrize("start_step", slow_but([], [None, 2]))
def test_replicas_start_to_search_in_a_later_step(start_step):
    with replicas.two_replicas().scope():
        model = model_of({"num_hard": 6}, start_step=start_step)
    assert np.isfinite(fit(model, 2)).all()
