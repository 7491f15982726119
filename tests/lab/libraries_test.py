import json

import pytest

from benchmarks.harness import step_case
from lab.speed import implementations, libraries, threads

_SHAPE = ["--num-classes", "500", "--steps", "4"]


@pytest.fixture
def in_this_process(monkeypatch):
    """Measures cases one after the other, without turns; returns the environments."""
    seen = []

    def call(functions, environments=None):
        seen.extend(environments or [])
        return [function(None) for function in functions]

    monkeypatch.setattr(step_case.own_process, "call_in_turns", call)
    monkeypatch.setattr(step_case.machine, "use", lambda *_: None)
    return seen


def _measured(case, turn=None, steps_per_turn=0):
    """Returns figures without a measurement; `torch` is not installed."""
    if case.method == "torch_sampled_softmax":
        return {"error": "ImportError: no torch"}
    times = {name: 1.25 for name in libraries._FIGURES if "ratio" not in name}
    turns_ms = {"turns_ms": [2.0, 3.0], "turns_cpu_ms": [1.0, 1.0]}
    return {**times, **turns_ms, "step_mb": 1.0, "peak_mb": 1.0, "steps": case.max_steps}


def test_each_library_has_a_line_in_each_block(in_this_process, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(step_case.StepCase, "figures_or_error", _measured)
    path = tmp_path / "libraries.json"
    libraries.main([*_SHAPE, "--steps-per-turn", "2", "--json", str(path)])
    rows = json.loads(path.read_text())["rows"]
    cases = {**libraries.CASES, **libraries.SLOW_CASE}
    assert [row["title"] for row in rows] == 4 * [*cases]
    assert sum("error" in row for row in rows) == 4
    assert in_this_process.count(libraries.INSTRUCTIONS["AVX2"]) == 2 * len(cases)
    said = capsys.readouterr().out
    assert "| AVX2, 1 thread | all, 1 thread | AVX2, 2 threads | all, 2 threads |" in said
    assert "| PyTorch, `SparseAdam` | - | - | - | - |" in said
    assert "| tf_largeout, `LazyAdam` | 1.2, 1.2 |" in said


def test_each_implementation_has_a_line(in_this_process, monkeypatch, capsys):
    monkeypatch.setattr(step_case.StepCase, "figures_or_error", _measured)
    rows = implementations.main(_SHAPE)["rows"]
    ours = list(implementations.IMPLEMENTATIONS)
    on_jax = [*ours, "Keras on JAX"]
    steps = [*ours, *implementations.OTHERS, *implementations.SLOW]
    assert [row["title"] for row in rows] == [*steps, *on_jax, *on_jax]
    assert sum("error" in row for row in rows) == 1
    assert in_this_process[:2] == [{"LARGEOUT_OPS": "native"}, {"LARGEOUT_OPS": "stock"}]
    assert "| step, op library | 1.2, 1.2 | 1.00 | 1 | 1 |" in capsys.readouterr().out


@pytest.mark.slow
def test_a_pass_over_all_classes_is_measured_with_each_implementation():
    options = ["--num-classes", "2000", "--what", "top_k", "--passes", "2"]
    report = implementations.main(options)
    assert [row["title"] for row in report["rows"]] == list(implementations.IMPLEMENTATIONS)
    assert all(row["cpu_ms"] > 0 for row in report["rows"])


@pytest.mark.slow
def test_each_setting_of_the_threads_is_measured():
    shape = ["--num-classes", "2000", "--steps", "4"]  # more classes than negatives
    report = threads.main([*shape, "--steps-per-turn", "2"])
    assert [row["setting"] for row in report["rows"]] == list(threads.SETTINGS)
    assert all(row["cpu_ms"] > 0 for row in report["rows"])
