"""The example's model looks back only, learns with each loss, and answers from a folder."""

import importlib.util
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.slow import slow_but

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "next_item.py"
NUM_ITEMS, LENGTH = 30, 6


def _example():
    spec = importlib.util.spec_from_file_location("next_item", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def _users():
    """Item `i` is followed by `i + 1`."""
    starts = np.random.default_rng(0).integers(0, NUM_ITEMS, 40)
    users = np.repeat(np.arange(40), 9)
    items = (starts[:, None] + np.arange(9)).ravel() % NUM_ITEMS
    return users, items, np.tile(np.arange(9), 40)


def _data():
    return tflo.datasets.Interactions.from_columns(*_users())


@pytest.mark.parametrize("ligr", slow_but([False], [False, True]))
def test_a_position_depends_on_the_items_before_it_only(ligr):
    example, data = _example(), _data()
    model, next_item = example.build_models(data.num_classes, LENGTH, 8, None, 0.5, ligr)
    ids = np.array([[0, 0, 3, 4, 5, 6], [0, 0, 3, 4, 9, 6]], np.int32)
    logits = model(ids).numpy()
    np.testing.assert_allclose(logits[0, :4], logits[1, :4], rtol=1e-4, atol=1e-5)
    assert np.abs(logits[0, 4:] - logits[1, 4:]).max() > 1e-3
    np.testing.assert_allclose(next_item(ids), logits[:, -1], rtol=1e-4, atol=1e-5)
    # Nor does it depend on the padding, which batches by length leave out.
    np.testing.assert_allclose(model(ids[:, 2:]), logits[:, 2:], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(next_item(ids[:, 2:]), logits[:, -1], rtol=1e-4, atol=1e-5)
    # The row of the padding has no effect.
    table = model.layers[-1].embeddings
    table.assign(tf.tensor_scatter_nd_update(table, [[0]], [[9.0] * 8]))
    np.testing.assert_allclose(model(ids)[:, 2:, 1:], logits[:, 2:, 1:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "loss, sampler",
    [
        ("sampled_softmax", "log_uniform"),
        ("sampled_softmax", "unigram"),
        ("bce", "uniform"),
        ("gbce", "uniform"),
        ("softmax", None),
    ],
)
def test_each_loss_has_a_gradient_for_items_that_occur(loss, sampler):
    example, data = _example(), _data()
    split = data.leave_one_out(LENGTH)
    sampler = example.SAMPLERS[sampler](data, 8) if sampler else None
    model, _ = example.build_models(data.num_classes, LENGTH, 8, sampler, 0.0)
    with tf.GradientTape() as tape:
        value = example.LOSSES[loss]()(split.y[:8], model(split.x[:8], training=True))
    gradient = tf.convert_to_tensor(tape.gradient(value, model.layers[-1].embeddings.value))
    assert value > 0
    assert (np.abs(gradient.numpy()[np.unique(split.x[:8][split.x[:8] > 0])]).sum(1) > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--ligr", "--loss", "softmax", "--repeats"]])
def test_example_trains_evaluates_exports_and_answers(options, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = zip(*_users(), strict=True)
    text = "".join(f"{user},{item},5,{time}\n" for user, item, time in rows)
    pathlib.Path("ratings.csv").write_text("userId,movieId,rating,timestamp\n" + text)
    sizes = ["--length", "6", "--dim", "16", "--epochs", "60", "--batch-size", "8"]
    files = ["--data", ".", "--format", "movielens", "--k-core", "2", "--export", "1"]
    _example().main([*files, *sizes, "--num-sampled", "8", "--learning-rate", "1e-2", *options])
    printed = capsys.readouterr().out
    assert "<Interactions: 360 of 40 users with 30 items>" in printed
    assert printed.count("ndcg_at_10") >= 2
    data = tflo.datasets.interactions(".", "movielens")
    split = data.leave_one_out(LENGTH)
    for user, answer in zip(range(3), printed.splitlines()[-3:], strict=True):
        best = answer.split(": ")[1].split(", ")
        assert len(best) == 5 and data.item_names[split.test.target[user]] in best
    loaded = keras.saving.load_model("next_item.keras")
    _, best = tflo.retrieval.predict_top_k(loaded, split.test.history, k=1, verbose=0)
    assert (best[:, 0] == split.test.target).mean() > 0.6
    served = tf.saved_model.load("1").signatures["serving_default"]
    answers = served(features=tf.constant(split.test.history))
    assert (answers["ids"][:, 0] == best[:, 0]).numpy().mean() > 0.95
