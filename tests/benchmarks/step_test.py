import json

import pytest
import tensorflow as tf

from tests import gpu
from tf_largeout.benchmarks import step
from tf_largeout.benchmarks.harness import own_process
from tf_largeout.benchmarks.harness.step_case import StepCase

SMALL = ["--base", "dim=16", "--base", "num_sampled=64", "--steps", "5"]


@pytest.mark.slow
def test_a_case_gives_times_and_memory():
    case = StepCase("ours", "lazy_adam", 1000, 16, 32, 64, max_steps=6)
    figures = case.figures()
    assert figures["steps"] == 6
    assert 0 < figures["ms_10"] <= figures["ms"] <= figures["ms_90"]
    assert figures["step_mb"] < figures["peak_mb"]


@pytest.mark.slow
def test_command_line_writes_figures_and_picture(tmp_path):
    json_file, png_file = tmp_path / "step.json", tmp_path / "step.png"
    step.main(
        ["--sweep", "num_classes=500", *SMALL, "--variants", "ours"]
        + ["--json", str(json_file), "--png", str(png_file)]
    )
    (row,) = json.loads(json_file.read_text())["rows"]
    assert row["num_classes"] == 500 and row["steps"] == 5
    assert row["ms"] > 0 and row["limit_ms"] > 0
    assert png_file.stat().st_size > 10_000


@pytest.mark.gpu
def test_a_case_on_the_gpu_reports_gpu_memory():
    if gpu.is_emulated():
        pytest.skip("the emulated GPU does not count its memory")
    case = StepCase("ours", "lazy_adam", 100_000, 16, 32, 64, max_steps=6, device="gpu")
    figures = case.measure()
    assert figures["steps"] == 6
    weights = 4 * 100_000 * (16 + 1) / 2**20
    assert 3 * weights < figures["weights_and_slots_mb"] < figures["peak_mb"] < 30 * weights


def test_a_missing_gpu_is_reported(capsys):
    with pytest.raises(SystemExit):
        step.main(["--device", "gpu"])
    assert (
        f"on a GPU: TensorFlow {tf.__version__} finds none. See docs/gpu.md"
        in capsys.readouterr().err
    )


@pytest.mark.slow
@pytest.mark.parametrize(("method", "optimizer"), step.OTHER_VARIANTS.values())
def test_searches_and_passes_over_all_classes_can_be_measured(method, optimizer):
    figures = StepCase(method, optimizer, 500, 16, 32, 64, max_steps=3).figures()
    assert figures["steps"] == 3


def test_a_case_that_cannot_be_measured_gives_a_row_with_the_reason(monkeypatch):
    monkeypatch.setattr(step.machine, "limits", lambda: {"gflops": 50.0, "gb_per_s": 10.0})
    monkeypatch.setattr(own_process, "call", lambda function: function())
    rows = step.main(
        ["--sweep", "num_classes=10,500", *SMALL, "--variants", "own hard, inverted file"]
    )["rows"]
    assert [row["num_classes"] for row in rows] == [10, 500]
    assert "draw 48 distinct classes of 10" in rows[0]["error"]
    assert rows[1]["ms"] > 0 and rows[1]["limit_ms"] is None
