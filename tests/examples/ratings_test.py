"""The example recommends the films of a user's group, and its encoder equals a product."""

import argparse
import importlib.util
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tf_largeout import datasets

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "ratings.py"
NUM_USERS, NUM_ITEMS = 40, 24


def _example():
    spec = importlib.util.spec_from_file_location("ratings", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example


def _ratings():
    """Users of two groups. Each rates films of its half with 5 stars, a few others with 1."""
    random = np.random.default_rng(0)
    own = (np.arange(NUM_ITEMS) < NUM_ITEMS // 2) == (np.arange(NUM_USERS) % 2 == 0)[:, None]
    rated = random.random([NUM_USERS, NUM_ITEMS]) < np.where(own, 0.7, 0.1)
    users, items = np.nonzero(rated)
    values = np.where(own[users, items], 5, 1).astype("float32")
    names = np.arange(NUM_USERS).astype(str)
    return datasets.Ratings(users, items, values, names, np.arange(NUM_ITEMS).astype(str))


def test_no_rating_is_in_both_parts():
    ratings = _ratings()
    stars, test = _example().hold_out(ratings)
    together = tf.sparse.to_dense(stars) + tf.sparse.to_dense(test)
    np.testing.assert_array_equal(
        together.numpy()[ratings.users, ratings.items], ratings.values
    )
    assert 0.1 < test.values.shape[0] / len(ratings) < 0.3
    assert stars.values.shape[0] + test.values.shape[0] == len(ratings)


def test_the_encoder_is_a_product_with_the_matrix_of_stars():
    example = _example()
    stars, _ = example.hold_out(_ratings())
    model = example.build_model(NUM_ITEMS, 4, 0.1)
    bag = next(layer for layer in model.layers if "bag" in layer.name)
    found = bag(example.bags(stars))
    product = tf.sparse.sparse_dense_matmul(stars, bag.embeddings.value)
    np.testing.assert_allclose(found, product, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_few_epochs_rank_the_films_of_the_group_first():
    example = _example()
    stars, test = example.hold_out(_ratings())
    settings = {"dim": 4, "epochs": 20, "batch_size": 8, "unobserved_weight": 0.1}
    rates = {"learning_rate": 1e-2, "class_rate": 0.3}
    model = example.train(stars, argparse.Namespace(**settings, **rates))
    found = example.evaluate(model, stars, test)
    assert found["ndcg_at_10"] > 0.5 and found["recall_at_10"] > 0.5


@pytest.mark.slow
def test_the_example_saves_and_recommends(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(datasets, "ml_100k_ratings", _ratings)
    path = tmp_path / "ratings.keras"
    sizes = ["--epochs", "30", "--batch-size", "8", "--dim", "4", "--learning-rate", "1e-2"]
    _example().main([*sizes, "--out", str(path)])
    assert path.stat().st_size > 1000
    *_, even, odd, _ = capsys.readouterr().out.splitlines()
    for line, half in ((even, range(12)), (odd, range(12, NUM_ITEMS))):
        best = [int(name) for name in line.split(": ")[1].split(", ")]
        assert len(best) == 5 and set(best[:2]) <= set(half)
