"""The example learns to verify pairs of new identities, with shards and over all classes."""

import importlib.util
import pathlib

import numpy as np
import pytest

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "identities.py"


@pytest.fixture(name="example")
def _example(monkeypatch):
    spec = importlib.util.spec_from_file_location("identities", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    monkeypatch.setattr(example, "TEST_IDENTITIES", 400)
    return example


def test_a_picture_depends_on_identity_and_picture_alone(example):
    pictures = example.Pictures(100, seed=3)
    ids = np.array([4, 4, 5, 4])
    rows = pictures.take(ids, np.array([0, 1, 0, 0]))
    assert rows.shape == (4, example.PIXELS) and rows.dtype == np.float32
    np.testing.assert_array_equal(rows[0], rows[3])
    assert np.abs(rows[0] - rows[1]).max() > 0.1 < np.abs(rows[0] - rows[2]).max()
    np.testing.assert_array_equal(example.Pictures(100, seed=3).take(ids, ids * 0)[2], rows[2])


def test_a_perfect_encoder_is_always_right_and_a_constant_one_never_above_chance(example):
    class Encoder:
        def __init__(self, rows):
            self.rows = rows

        def predict(self, pictures, **_):
            return self.rows(len(pictures))

    identity = np.random.default_rng(0).standard_normal((400, 1024))
    assert example.verify(Encoder(lambda n: identity)) == (1.0, 1.0)
    accuracy, accepted = example.verify(Encoder(lambda n: np.ones((n, 4))))
    assert accuracy == 0.5 and accepted == 0.0


@pytest.mark.slow
def test_training_helps(example, capsys):
    _train_and_compare(example, ["--sampled", "40", "--shards", "3"], steps=60)
    assert " of pairs correct" in capsys.readouterr().out


@pytest.mark.slow
def test_training_helps_with_all_classes(example):
    _train_and_compare(example, ["--sampled", "0"], steps=200)


def _train_and_compare(example, options, steps):
    before, _ = example.verify(example.build_model(200, 40).get_layer("encoder"))
    sizes = ["--identities", "200", "--batch-size", "64", "--learning-rate", "5e-3"]
    after, _ = example.main([*sizes, *options, "--steps", str(steps)])
    assert after > before + 0.03
