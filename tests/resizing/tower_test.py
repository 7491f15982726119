"""`resize_classes` of models whose class rows an `ItemTower` computes."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.resize_problem import (
    DIM,
    GROWN,
    KEPT,
    N,
    assert_moved,
    compiled_model,
    examples,
    fit,
    state,
)
from tests.slow import slow_but
from tf_largeout.classes.class_changes import ClassChange

RANDOM = np.random.default_rng(0)
NUMBERS = RANDOM.normal(size=[N, 3]).astype("float32")
MORE = RANDOM.normal(size=[GROWN, 3]).astype("float32")  # of new classes
WORDS = RANDOM.integers(1, 9, [N, 2])
LAST = np.arange(GROWN - N)
X = RANDOM.normal(size=[6, DIM]).astype("float32")


def _model(features=NUMBERS, encoder=None, sampler=None, optimizer=None):
    encoder = encoder or keras.layers.Dense(DIM, name="encoder")
    tower = tflo.layers.ItemTower(features, encoder, free_rows=True)
    sampler = sampler or tflo.samplers.UniformSampler(8, seed=1)
    head = tflo.layers.LargeOutput(N, sampler, embeddings=tower, name="head")
    model = compiled_model(head, optimizer)
    fit(model, *examples())
    head.bias.assign(np.linspace(-1, 1, N))
    return model


def _several():
    inputs = {
        "words": keras.Input([2], dtype="int64", name="words"),
        "numbers": keras.Input([3], name="numbers"),
    }
    words = tflo.layers.EmbeddingBag(9, DIM)(inputs["words"])
    encoder = keras.Model(inputs, words + keras.layers.Dense(DIM)(inputs["numbers"]))
    return _model({"words": WORDS, "numbers": NUMBERS}, encoder)


@pytest.mark.parametrize("unigram", slow_but([True], [False, True]), ids=["uniform", "unigram"])
@pytest.mark.parametrize(
    "kept",
    [
        pytest.param(np.arange(N), marks=pytest.mark.slow),
        KEPT,
        pytest.param(KEPT[:20], marks=pytest.mark.slow),
    ],
    ids=["all", "some", "few"],
)
def test_kept_classes_keep_scores_and_state_and_training_continues(kept, unigram, tmp_path):
    counts = np.arange(N) + 1
    sampler = tflo.samplers.UnigramSampler(8, counts=counts, seed=2) if unigram else None
    model = _model(sampler=sampler)
    logits, before = model.predict(X, verbose=0), state(model)
    new = MORE[: GROWN - len(kept)]
    grown = tflo.resize_classes(model, GROWN, kept, features=new)
    assert_moved(before, state(model), np.arange(N))
    if unigram:
        found = grown.layers[-1].sampler_counts
        np.testing.assert_array_equal(found, np.pad(counts[kept], (0, GROWN - len(kept))))
    else:
        assert_moved(before, state(grown), kept)
    tower = grown.layers[-1].tower
    np.testing.assert_array_equal(tower.features_0[len(kept) :], new)
    assert np.any(tower.free_rows[: len(kept)]) and not np.any(tower.free_rows[len(kept) :])
    found = grown.predict(X, verbose=0)
    np.testing.assert_allclose(found[:, : len(kept)], logits[:, kept], rtol=1e-5, atol=1e-6)
    rows = tower.encoder(new)  # biases start at 0
    features = grown.layers[0](X)
    np.testing.assert_allclose(found[:, len(kept) :], features @ tf.transpose(rows), 1e-4, 1e-5)
    _, best = tflo.retrieval.predict_top_k(grown, X, 3, verbose=0)
    np.testing.assert_array_equal(best, np.argsort(-found, axis=1)[:, :3])

    fit(grown, *examples(num_classes=GROWN))
    assert np.any(tower.free_rows[len(kept) :])
    grown.save(tmp_path / "grown.keras")
    loaded = keras.models.load_model(tmp_path / "grown.keras")
    for one in (grown, loaded):
        fit(one, *examples(seed=2, num_classes=GROWN))
    for (name, values), (_, others) in zip(state(grown), state(loaded), strict=True):
        np.testing.assert_array_equal(others, values, err_msg=name)


@pytest.mark.slow
def test_a_model_with_the_same_classes_trains_like_the_original():
    model = _model()
    order = np.random.default_rng(3).permutation(N)
    same, permuted = tflo.resize_classes(model, N), tflo.resize_classes(model, N, order)
    x, y = examples(seed=2)
    losses = fit(model, x, y)
    assert fit(same, x, y) == losses
    assert_moved(state(model), state(same), np.arange(N))
    logits = model.predict(X, verbose=0)
    assert np.isfinite(fit(permuted, x, ClassChange(N, N, order).new_ids()[y])).all()
    permuted = tflo.resize_classes(model, N, order)
    np.testing.assert_allclose(permuted.predict(X, verbose=0), logits[:, order], 1e-5, 1e-6)
    fewer = tflo.resize_classes(model, 9).predict(X, verbose=0)
    np.testing.assert_allclose(fewer, logits[:, :9], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_several_features_and_an_encoder_that_encodes_the_inputs_too():
    model = _several()
    logits = model.predict(X, verbose=0)
    new = {"words": WORDS[LAST], "numbers": NUMBERS[LAST]}
    found = tflo.resize_classes(model, GROWN, features=new).predict(X, verbose=0)
    np.testing.assert_allclose(found[:, :N], logits, rtol=1e-5, atol=1e-6)

    bag = tflo.layers.EmbeddingBag(9, DIM)
    head = tflo.layers.LargeOutput(N, "uniform", embeddings=tflo.layers.ItemTower(WORDS, bag))
    model = keras.Sequential([keras.Input([2], dtype="int64"), bag, head])
    model.compile(tflo.optimizers.LazyAdam(0.1), tflo.losses.SampledSoftmaxLoss())
    grown = tflo.resize_classes(model, GROWN, features=WORDS[LAST])
    assert grown.layers[-1].tower.encoder is grown.layers[0]
    grown.fit(WORDS, np.arange(N), verbose=0)
    rows, bias = grown.layers[0](np.concatenate([WORDS, WORDS[LAST]])), grown.layers[-1].bias
    expected = rows[:3] @ tf.transpose(rows) + bias
    np.testing.assert_allclose(grown(WORDS[:3]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"Cannot resize .* without `features` of the 7 new .*float32 \[7, 3\].*NoneType"),
        ({"features": MORE[:6]}, r"float32 \[7, 3\].*Received: \['float32 \[6, 3\]'\]"),
        ({"features": MORE[:7, :2]}, r"Received: \['float32 \[7, 2\]'\]"),
        ({"features": {"a": MORE[:7]}}, "Received: dict"),
        ({"features": MORE[:7] * np.nan}, "finite numbers"),
        ({"features": MORE[:7], "initializer": "zeros"}, "Pass `features` of the new classes"),
    ],
)
def test_features_that_do_not_fit_raise_an_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        tflo.resize_classes(_model(), GROWN, **arguments)


def test_features_of_a_layer_with_a_table_raise_an_error():
    model = keras.Sequential([keras.Input([DIM]), tflo.layers.LargeOutput(N)])
    with pytest.raises(ValueError, match="Pass the rows of the new classes as `initializer`"):
        tflo.resize_classes(model, GROWN, features=MORE[:7])


def _larger(free_rows, encoder=None):
    features = np.concatenate([NUMBERS, MORE[:7]])
    tower = tflo.layers.ItemTower(features, encoder or keras.layers.Dense(DIM), free_rows)
    head = tflo.layers.LargeOutput(GROWN, "uniform", embeddings=tower, use_bias=False)
    return keras.Sequential([keras.Input([DIM]), keras.layers.Dense(DIM), head])


@pytest.mark.parametrize("free_rows", [True, False])
def test_a_second_tower_that_drops_trained_free_rows_is_reported(free_rows, caplog):
    model = _model()
    encoder = model.layers[-1].tower.encoder
    _larger(free_rows, encoder)
    assert "starts without the trained free rows of ItemTower 'item_tower" in caplog.text
    assert "resize_classes" in caplog.text
    caplog.clear()
    _larger(free_rows)
    tflo.resize_classes(model, GROWN, features=MORE[:7])
    assert not caplog.text


@pytest.mark.parametrize("free_rows", [True, False])
def test_the_weights_of_fewer_classes_raise_an_error(free_rows, tmp_path):
    model = _model()
    path = tf.train.Checkpoint(model=model.layers[-1]).write(tmp_path / "checkpoint")
    model.layers[-1].tower.save_own_variables(store := {})
    head = _larger(free_rows).layers[-1]
    with pytest.raises(ValueError, match="resize_classes"):
        head.tower.load_own_variables(store)
    with pytest.raises(ValueError, match="shape" if free_rows else "trained free rows"):
        tf.train.Checkpoint(model=head).read(path)
