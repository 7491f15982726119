"""Each command of `python -m benchmarks` runs with its default task and methods.

Only sizes and times are smaller than by default. `retrieval` has one method here, because
others may not be installed; retrieval_test.py has all of them. In the short suite, commands
that measure many methods, rates or searches run with fewer of them.
"""

import importlib
import json
import shlex

import pytest
import tensorflow as tf

from benchmarks import profile, retrieval
from benchmarks.__main__ import BENCHMARKS
from benchmarks.harness import machine, own_process
from benchmarks.harness.training import TrainingRun
from lab import corpora
from tests.examples.tiny_dataset import TinyDataset, encode
from tests.slow import slow_but
from tf_largeout import datasets
from tf_largeout.datasets import place_names

_SETTINGS = "--set batch_size=8 --set num_sampled=64 --set dim=4 --set steps_per_execution=2"
COMMANDS = {
    "demo": "--seconds 0.05 --out {out}/demo",
    "step": "--sweep num_classes=500 --base dim=8 --base num_sampled=64 --steps 1",
    "profile": _SETTINGS,
    "race": f"--seconds 0.05 --sample 8 --out {{out}}/race {_SETTINGS}",
    "tune": f"--methods ours --seconds 0.05 --sample 8 --out {{out}}/tune {_SETTINGS}",
    "table": "--logs {out}/logs",
    "search": "--num_classes 6000 --dim 4 --batch_size 4 --k 5 --steps 1",
    "retrieval": "--k 5 --batches 4 --queries 8 --seconds 0.001 --training-seconds 0.05 "
    "--methods BruteForceIndex --out {out}/retrieval",
}
FEWER = {
    "profile": "--methods ours",
    "race": "--methods ours",
    "tune": "--rates 1",
    "search": "--settings exact 'inverted file, 4 probes'",
}
SHORT = [(name, name in FEWER) for name in COMMANDS]
DEFAULTS = [(name, False) for name in FEWER]


def _in_this_process(run):
    run.train()
    return run.read_log()


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Tiny data for the default tasks, and all work in this process."""
    data = TinyDataset()
    data.validation = data.test
    for module in (corpora, datasets):
        monkeypatch.setattr(module, "load", lambda *_, **__: data)
    monkeypatch.setattr(place_names, "encode", encode)
    monkeypatch.setattr(TrainingRun, "in_own_process", _in_this_process)
    monkeypatch.setattr(own_process, "call", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(machine, "limits", lambda: {"gflops": 50.0, "gb_per_s": 10.0})
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", lambda _: None)
    for name in retrieval._THREADS:
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(profile, "_BATCHES", 2)
    run = TrainingRun("linux_callees", "softmax", str(tmp_path / "logs"), 1.0, 1.0)
    point = {"seconds": 1.0, "steps": 4, "examples": 32, "p1": 50.0}
    run.log_path.parent.mkdir()
    run.log_path.write_text(json.dumps({**run.read_log(), "points": [point]}))


def test_each_command_is_tested():
    have_own_tests = {"gpu_check", "gpu_kernels"}
    assert set(COMMANDS) | have_own_tests == set(BENCHMARKS)


@pytest.mark.parametrize("name, fewer", slow_but(SHORT, SHORT + DEFAULTS))
def test_a_command_runs_with_its_defaults(name, fewer, tiny, tmp_path):
    path = tmp_path / "figures.json"
    arguments = shlex.split(COMMANDS[name].format(out=tmp_path))
    arguments += shlex.split(FEWER[name]) if fewer else []
    main = importlib.import_module(f"benchmarks.{name}").main
    main([*arguments, "--json", str(path)])
    report = json.loads(path.read_text())
    rows = report.get("rows") or [*report["methods"].values()]
    assert rows and all("error" not in row for row in rows)
    if name == "profile":
        for row in rows:
            assert tuple(row["parts_ms"]) == profile.PARTS
            assert sum(row["parts_ms"].values()) == pytest.approx(row["step_ms"])
