import dataclasses
import json
import multiprocessing
import shutil
import types

import pytest

from benchmarks import tune


def arguments(out, rates="1 100"):
    command = f"--task synthetic --methods ours --rates {rates} --seconds 0.5 --sample 200 "
    command += "--set num_sampled=64 --set dim=16 --set batch_size=64 --set learning_rate=1e-4 "
    return (command + f"--out {out} --json {out}/figures.json").split()


@pytest.fixture(scope="module")
def trained():
    """The trained runs in order. They run in this process, which is faster."""
    runs = []

    class Child:
        exitcode = 0

        def __init__(self, target):
            self.run, self.start = target.__self__, target

        def join(self):
            runs.append(self.run)

    context = types.SimpleNamespace(Process=Child)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(multiprocessing, "get_context", lambda method: context)
        yield runs


@pytest.fixture(scope="module")
def tuned(trained, tmp_path_factory):
    """The output folder of one command."""
    out = tmp_path_factory.mktemp("tuned")
    tune.main(arguments(out))
    return out


@pytest.mark.slow
def test_each_rate_trains_on_the_validation_split_and_the_best_is_reported(tuned, trained):
    ours = json.loads((tuned / "figures.json").read_text())["methods"]["ours"]
    assert [run["rate"] for run in ours["runs"]] == pytest.approx([1e-4, 1e-2])
    assert ours["best"] == ours["runs"][1] and ours["best"]["p1"] > ours["runs"][0]["p1"]
    assert all(run.on_validation and not run.resumable for run in trained)
    assert not list(tuned.rglob("checkpoint"))


@pytest.mark.slow
def test_a_finished_run_is_skipped_and_an_interrupted_one_restarted(tmp_path, tuned, trained):
    shutil.copytree(tuned, tmp_path, dirs_exist_ok=True)
    first = json.loads((tmp_path / "figures.json").read_text())
    cut = dataclasses.replace(trained[0], directory=str(tmp_path / "ours-learning_rate-x1"))
    trained.clear()
    log = json.loads(cut.log_path.read_text())
    log["points"][-1]["seconds"] = 0.2
    log["points"][-1]["p1"] = 101.0
    cut.log_path.write_text(json.dumps(log))
    second = tune.main(arguments(tmp_path))
    assert trained == [cut]
    points = json.loads(cut.log_path.read_text())["points"]
    assert [point["seconds"] for point in points] == [0.5] and points[0]["p1"] <= 100
    assert second["methods"]["ours"]["runs"][1] == first["methods"]["ours"]["runs"][1]


def test_rates_must_be_positive(tmp_path, capsys):
    with pytest.raises(SystemExit):
        tune.main(arguments(tmp_path, "0"))
    assert "expected a positive number; got '0'" in capsys.readouterr().err
