import dataclasses
import json
import shutil

import pytest

from benchmarks import race
from benchmarks.harness.training import TrainingRun


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run."""
    overrides = {"batch_size": 64, "num_sampled": 64, "dim": 16, "learning_rate": 1e-2}
    out = str(tmp_path_factory.mktemp("race"))
    run = TrainingRun(
        "synthetic", "ours", out, 0.6, 0.3, sample=50, final_sample=64, overrides=overrides
    )
    run.train()
    return run


@pytest.fixture
def run(trained, tmp_path):
    """The trained run with its own copy of the log."""
    shutil.copy(trained.log_path, tmp_path)
    return dataclasses.replace(trained, directory=str(tmp_path))


@pytest.mark.slow
def test_a_longer_run_continues_from_the_checkpoint(run):
    points = run.read_log()["points"]
    assert [round(point["seconds"], 1) for point in points][-1] == 0.6
    dataclasses.replace(run, seconds=0.9).train()
    longer = run.read_log()["points"]
    assert longer[: len(points)] == points
    assert longer[-1]["seconds"] == 0.9 and longer[-1]["steps"] > points[-1]["steps"]
    assert longer[-1]["loss"] < points[0]["loss"]


@pytest.mark.slow
def test_the_log_of_an_earlier_version_is_continued(run):
    log = json.loads(run.log_path.read_text())
    assert log.pop("num_examples") == 18_000
    del log["grown_mb"], log["model_mb"], log["query_ms"]
    for point in log["points"]:  # earlier versions had no PSP@k and no CPU time
        assert [point.pop(f"psp{k}") > 0 for k in (1, 3, 5)]
        assert point.pop("wall_seconds") > 0 and point.pop("cpu_seconds") > 0
    run.log_path.write_text(json.dumps(log))
    dataclasses.replace(run, seconds=0.9).train()
    longer = run.read_log()
    assert longer["num_examples"] == 18_000
    assert ["psp1" in point for point in longer["points"]] == [False, False, True]


@pytest.mark.slow
def test_a_run_by_cpu_ends_after_the_given_seconds_of_computation(run):
    run.log_path.unlink()
    dataclasses.replace(run, by_cpu=True, resumable=False).train()
    points = json.loads(run.log_path.read_text())["points"]
    assert [round(point["seconds"], 1) for point in points][-1] == 0.6
    assert all(point["cpu_seconds"] >= point["seconds"] > 0 for point in points)


@pytest.mark.slow
def test_a_log_of_other_settings_is_rejected(run):
    other = dataclasses.replace(run, overrides={"dim": 8})
    with pytest.raises(ValueError, match=r"another run: settings differ"):
        other.read_log()


@pytest.mark.slow
def test_a_failed_process_is_reported_with_its_output(run):
    run.log_path.unlink()
    broken = dataclasses.replace(run, task="no such task")
    with pytest.raises(RuntimeError, match="Unknown task 'no such task'. There are: .*linux"):
        broken.in_own_process()


@pytest.mark.slow
def test_command_line_races_and_writes_figures_and_picture(run, tmp_path):
    """One method runs in its own process; the other has a log and is not trained again."""
    arguments = "--task synthetic --methods ours tf_nn_nce --seconds 0.6 --sample 50 "
    settings = [f"--set={name}={value}" for name, value in run.overrides.items()]
    race.main([*arguments.split(), *settings, "--out", str(tmp_path)])
    methods = json.loads((tmp_path / "race.json").read_text())["methods"]
    assert list(methods) == ["ours", "tf_nn_nce"]
    assert methods["ours"]["points"] == run.read_log()["points"]
    assert methods["tf_nn_nce"]["points"][-1]["seconds"] == 0.6
    assert (tmp_path / "race.png").stat().st_size > 10_000


@pytest.mark.slow
def test_the_last_evaluation_has_its_own_sample_size(run):
    *shares, last = (point["p1"] / 100 for point in run.read_log()["points"])
    assert all(share * 50 == pytest.approx(round(share * 50)) for share in shares)
    assert last * 64 == pytest.approx(round(last * 64))


def test_seconds_to_a_precision_are_interpolated():
    log = {"points": [{"seconds": 10.0, "p1": 2.0}, {"seconds": 20.0, "p1": 6.0}]}
    assert race.seconds_to(log, 3.0) == 12.5
    assert race.seconds_to(log, 7.0) is None
