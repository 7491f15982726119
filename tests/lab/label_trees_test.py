import json

import numpy as np
import pytest

from benchmarks.harness import tasks
from benchmarks.rivals.examples import Examples
from lab.label_trees import compare
from lab.label_trees.rivals import RIVALS


@pytest.mark.slow
def test_one_command_measures_and_writes_the_table(tmp_path):
    pytest.importorskip("omikuji", reason="not installed: extra `rivals`")
    out = tmp_path / "out"
    arguments = "--task synthetic --seconds 1 --sample 200 --methods omikuji_1_tree nce"
    compare.main([*arguments.split(), "--out", str(out)])
    report = json.loads((out / "practice.json").read_text())
    assert {row["method"] for row in report["rows"]} == {"omikuji_1_tree", "nce"}
    for row in report["rows"]:
        for name in ("p1", "cpu_seconds", "wall_seconds", "grown_mb", "model_mb"):
            assert row[name] > 0, name
        assert row["query_ms_1"] > row["query_ms_64"] > 0
    (ours,) = (row for row in report["rows"] if row["method"] == "nce")
    assert 1 <= ours["cpu_seconds"] < 2  # the limit, plus the step that exceeded it
    assert ours["model_mb"] == pytest.approx((8000 * 128 + 2000 * 129) * 4 / 2**20)


@pytest.mark.slow
def test_settings_of_a_rival_use_the_names_of_its_library(tmp_path):
    pytest.importorskip("omikuji", reason="not installed: extra `rivals`")
    arguments = "--task synthetic --sample 200 --methods omikuji --validation"
    given = ["--set", "n_trees=2", "--set", "linear_c=0.5", "--out", str(tmp_path)]
    compare.main([*arguments.split(), *given])
    log = json.loads((tmp_path / "omikuji.json").read_text())
    assert log["settings"] == {"n_trees": 2, "linear_c": 0.5} and log["on_validation"]


@pytest.mark.slow
def test_trees_with_bigrams_learn_from_pairs_that_single_ids_do_not_show(tmp_path):
    pytest.importorskip("omikuji", reason="not installed: extra `rivals`")
    rng = np.random.default_rng(0)
    ids = rng.integers(1, 7, [4000, 2]).astype(np.int32)
    labels = (ids[:, 0] * 7 + ids[:, 1]).astype(np.int64)  # the order of the two ids matters
    task = tasks.from_arrays(ids, labels, num_features=7, num_classes=49, batch_size=100)
    hits = {}
    for name in ("omikuji_1_tree", "omikuji_1_tree_bigrams"):
        (tmp_path / name).mkdir()
        model = RIVALS[name].model(RIVALS[name].settings_for("made"), tmp_path / name)
        model.prepare(Examples.of_task(task))
        model.train()
        features, right = task.test
        hits[name] = np.mean(model.top_k(features, 1)[:, 0] == right)
    assert hits["omikuji_1_tree_bigrams"] > 0.9 > 0.8 > hits["omikuji_1_tree"]


@pytest.mark.slow
def test_trees_with_bigrams_are_a_row(tmp_path):
    pytest.importorskip("omikuji", reason="not installed: extra `rivals`")
    arguments = "--task synthetic --sample 200 --methods omikuji_1_tree_bigrams"
    (row,) = compare.main([*arguments.split(), "--out", str(tmp_path)])
    assert row["p1"] > 0
    log = json.loads((tmp_path / "omikuji_1_tree_bigrams.json").read_text())
    assert log["settings"] == {"n_trees": 1, "pairs_per_id": 6}


@pytest.mark.parametrize("text", ["linear_c", "=1", "linear_c="])
def test_a_setting_needs_a_name_and_a_value(text, capsys):
    with pytest.raises(SystemExit):
        compare.main(["--set", text])
    assert f"expected NAME=VALUE; got '{text}'" in capsys.readouterr().err


@pytest.mark.slow
def test_joined_models_are_one_row(tmp_path):
    arguments = "--task synthetic_multilabel --seconds 0.5 --sample 200"
    methods = ["--methods", "several_labels x3", "several_labels"]
    joined, one = compare.main([*arguments.split(), *methods, "--out", str(tmp_path)])
    if joined["method"] != "several_labels x3":
        joined, one = one, joined
    assert joined["title"].endswith(", 3 models joined")
    assert joined["cpu_seconds"] >= 3 * 0.5 and joined["wall_seconds"] > 0
    assert joined["grown_mb"] > 0 and 0 < joined["query_ms_64"] < joined["query_ms_1"]
    # three encoders, the class rows of three models, and one bias
    biases_mb = 2 * 2000 * 4 / 2**20
    assert joined["model_mb"] == pytest.approx(3 * one["model_mb"] - biases_mb)
    log = json.loads((tmp_path / "several_labels x3.json").read_text())
    assert log["seconds_each"] == 0.5 and log["settings"]["dim"] == 256
