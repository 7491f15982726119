import json

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import race, tune
from benchmarks.harness import tasks
from lab.shared.class_vectors import class_vectors
from lab.shared.methods import METHODS


@pytest.mark.slow
def test_methods_of_notes_race_and_are_tuned_in_their_own_processes(tmp_path):
    arguments = "--task synthetic --methods taylor ours --seconds 0.5 --sample 50"
    # With the default rate, more steps in this time can make the weights singular.
    arguments += " --set dim=16 --set class_rate=200"
    paths = ["--out", str(tmp_path), "--json", str(tmp_path / "report.json")]
    race.main([*arguments.split(), *paths], METHODS)
    methods = json.loads((tmp_path / "report.json").read_text())["methods"]
    assert [log["title"] for log in methods.values()] == [
        "tf_largeout, Taylor softmax",
        "tf_largeout",
    ]
    arguments = arguments.replace(" ours", "") + " --rate class_rate --rates 0.1"
    (run,) = tune.main([*arguments.split(), *paths], METHODS)["methods"]["taylor"]["runs"]
    assert run["rate"] == run["settings"]["class_rate"] == pytest.approx(20)


def test_nce_starts_from_logits_that_are_log_probabilities():
    task = tasks.synthetic(num_classes=50, examples=500)("tiny", 64, 0, False)
    settings = METHODS["nce"].settings_for("tiny", dim=32, num_sampled=20)
    logits = METHODS["nce"].model(task, settings)(task.test[0])
    np.testing.assert_allclose(tf.reduce_logsumexp(logits, axis=1), 0, atol=0.1)


@pytest.mark.slow
def test_classes_that_share_features_have_similar_vectors():
    """Classes 2k and 2k + 1 have the same features, others have others."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 20, 1000)
    features = np.stack([1 + labels // 2 * 3 + j for j in range(3)], axis=1)
    features[:, 0] = np.where(rng.random(1000) < 0.3, 40, features[:, 0])
    task = tasks.from_arrays(features.astype(np.int32), labels, 41, 20, batch_size=50)
    vectors = class_vectors(task, dim=32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors @ vectors.T
    same = np.arange(20)[:, None] // 2 == np.arange(20) // 2
    assert cosines[same].min() > cosines[~same].max() + 0.3
