import json

import pytest

from lab.label_trees import compare


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
