import functools
import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest
import tensorflow as tf

from benchmarks import step
from benchmarks.harness import own_process, step_case
from benchmarks.harness.step_case import StepCase, dense_task
from benchmarks.harness.step_clock import WARM_UP, StepClock
from benchmarks.other_libraries import step_process
from tests import gpu

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


@pytest.mark.parametrize("label", step.RIVAL_VARIANTS)
def test_without_a_library_a_row_says_how_to_install_it(monkeypatch, label):
    monkeypatch.setattr(step.machine, "limits", lambda: {"gflops": 50.0, "gb_per_s": 10.0})
    monkeypatch.setattr(own_process, "call", lambda function: function())
    monkeypatch.setattr(step_process.importlib.util, "find_spec", lambda name: None)
    (row,) = step.main(["--sweep", "num_classes=500", *SMALL, "--variants", label])["rows"]
    assert re.match("ImportError: The package (torch|jax) is not installed.", row["error"])
    assert 'pip install "tf_largeout[rivals]"' in row["error"]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "optimizer"), step.RIVAL_VARIANTS.values())
def test_steps_of_other_libraries_are_measured_in_turns(method, optimizer):
    package = method.partition("_")[0]
    _skip_without(package)
    case = StepCase(method, optimizer, 500, 16, 32, 64, max_steps=7, threads=1)
    turn = CountedTurn()
    figures = step_process.measure(case, dense_task(500, 16, 32), turn, 3)
    assert figures["steps"] == 7 and turn.passed == 2
    assert len(figures["turns_ms"]) == len(figures["turns_cpu_ms"]) == 3
    assert figures["ms"] > 0 and figures["library"].startswith(f"{package} ")
    assert re.search("cross_entropy|sampled softmax", figures["loss"])


def _skip_without(package):
    if importlib.util.find_spec(package) is None:
        pytest.skip("not installed: extra `rivals`")


# Compares losses of PyTorch's models with numpy's. A negative that is the label has no effect.
_TORCH_LOSSES = """
import numpy as np, torch
from benchmarks.other_libraries import torch_steps as steps
torch.manual_seed(0)
x, labels = torch.randn(6, 4), torch.arange(6)
def loss(logits):
    return np.mean([np.log(np.exp(row).sum()) - row[0] for row in logits])
for name, make in steps.MODELS.items():
    model = make(9, 4, 20)
    weight = getattr(model.embeddings, "weight", model.embeddings).detach().numpy()
    f = model.encoder(x).detach().numpy()
    o = f @ weight.T
    drawn = np.arange(9)
    if name == "torch_sampled_softmax":
        torch.manual_seed(1); drawn = torch.randint(9, [20]).numpy(); torch.manual_seed(1)
    rows = [[o[i, i], *o[i, drawn[drawn != i]]] for i in range(6)]
    for optimizer in model.optimizers():
        optimizer.zero_grad()
    found = model(x, labels)
    np.testing.assert_allclose(found.item(), loss(rows), rtol=1e-5)
    found.backward()
    before = weight.copy()
    for optimizer in model.optimizers():
        optimizer.step()
    changed = np.flatnonzero((before != weight).any(1))
    assert set(changed) == set(drawn) | set(range(6)), name
"""
# The same for JAX, with the update of Adam's first step: rate * g / (abs(g) + small).
_JAX_LOSSES = """
import jax, numpy as np
from benchmarks.other_libraries import jax_steps as steps
x, labels = np.random.default_rng(0).normal(size=[6, 4]).astype("float32"), np.arange(6)
state = steps.new_state(30, 4)
drawn = np.asarray(jax.random.randint(jax.random.split(state["key"])[1], [20], 0, 30))
before = jax.tree.map(np.array, state["weights"])
def loss(kernel, embeddings):
    o = x @ kernel @ embeddings.T
    rows = [[o[i, i], *o[i, drawn[drawn != i]]] for i in range(6)]
    return np.mean([np.log(np.exp(row).sum()) - row[0] for row in rows])
kernel, embeddings = (before[p][n].astype(float) for p, n in
    [("encoder", "kernel"), ("classes", "embeddings")])
new, found = steps.train_step(state, x, labels, num_sampled=20)
np.testing.assert_allclose(found, loss(kernel, embeddings), rtol=1e-5)
changes = np.asarray(new["weights"]["classes"]["embeddings"]) - embeddings
for c in range(30):
    shifted = embeddings.copy()
    shifted[c, 0] += 1e-5
    slope = (loss(kernel, shifted) - loss(kernel, embeddings)) / 1e-5
    expected = -1e-3 * np.sign(slope.round(7))
    np.testing.assert_allclose(changes[c, 0], expected, rtol=0.01, atol=1e-7)
assert set(np.flatnonzero(changes.any(1))) == set(drawn) | set(range(6))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "losses"), [("torch", _TORCH_LOSSES), ("jax", _JAX_LOSSES)]
)
def test_losses_of_other_libraries_equal_those_of_numpy_and_change_the_rows_they_used(
    package, losses
):
    _skip_without(package)
    run = subprocess.run(
        [sys.executable, "-c", losses], capture_output=True, text=True, cwd=step_process.ROOT
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
def test_a_failed_process_of_pytorch_is_an_error():
    _skip_without("torch")
    case = StepCase("torch_unknown", "none", 500, 16, 32, 64, max_steps=2)
    with pytest.raises(
        RuntimeError, match="process of PyTorch failed: KeyError: 'torch_unknown"
    ):
        step_process.measure(case, dense_task(500, 16, 32))


class CountedTurn:
    passed = 0

    def pass_on(self):
        self.passed += 1


def test_the_clock_passes_its_turn_on_after_some_measured_steps():
    turn = CountedTurn()
    clock = StepClock(max_steps=8, max_seconds=60, turn=turn, steps_per_turn=3)
    passed = []
    for _ in range(WARM_UP + 8):
        clock.begin()
        enough = clock.end()
        passed.append(turn.passed)
    assert passed == WARM_UP * [0] + [0, 0, 0, 1, 1, 1, 2, 2] and enough
    figures = clock.figures(0)
    assert figures["steps"] == 8
    assert len(figures["turns_ms"]) == len(figures["turns_cpu_ms"]) == 3
    assert figures["cpu_ms_10"] <= figures["cpu_ms"] <= figures["cpu_ms_90"]


def test_the_clock_stops_after_the_measured_time_and_at_least_five_steps():
    clock = StepClock(max_steps=100, max_seconds=0, warm_up=2)
    steps, enough = 0, False
    while not enough:
        clock.begin()
        enough, steps = clock.end(), steps + 1
    assert steps == 2 + 5


def test_cases_are_compared_with_the_first_in_the_same_turn(monkeypatch):
    figures = [
        {"turns_ms": [1.0, 2.0, 4.0], "turns_cpu_ms": [1.0, 1.0, 2.0]},
        {"turns_ms": [3.0, 6.0, 8.0, 90.0], "turns_cpu_ms": [2.0, 2.0, 8.0, 90.0]},
        {"error": "no"},
        RuntimeError("killed"),
    ]
    monkeypatch.setattr(own_process, "call_in_turns", lambda *_: figures)
    first, other, failed, killed = step_case.measure_in_turns([StepCase("ours", "none")] * 4, 5)
    assert "ratio" not in first and first["steps_per_turn"] == 5
    assert (other["ratio"], other["cpu_ratio"]) == (3, 2)
    assert other["ratio_10"] == pytest.approx(2.2) and other["cpu_ratio_90"] == pytest.approx(
        3.6
    )
    assert failed["error"] == "no" and "killed" in killed["error"]


def _three_turns(turn, path, name):
    for _ in range(3):
        with open(path, "a") as file:
            file.write(name)
        turn.pass_on()
    return name


def _variable(turn):
    return os.environ.get("LARGEOUT_TEST")


def _killed(turn):
    os._exit(1)


@pytest.mark.slow
def test_processes_run_one_at_a_time_and_may_be_killed(tmp_path):
    three = functools.partial(_three_turns, path=str(tmp_path / "log"))
    found = own_process.call_in_turns(
        [functools.partial(three, name="a"), _killed, functools.partial(three, name="b")]
    )
    assert found[::2] == ["a", "b"] and isinstance(found[1], RuntimeError)
    assert (tmp_path / "log").read_text() == "ababab"
    environments = [{"LARGEOUT_TEST": "1"}, {}]
    assert own_process.call_in_turns([_variable, _variable], environments) == ["1", None]
    assert "LARGEOUT_TEST" not in os.environ


@pytest.mark.slow
def test_variants_of_a_shape_take_turns(tmp_path):
    json_file = tmp_path / "step.json"
    arguments = ["--turns", "2", "--variants", "ours", "ours, LazySGD"]
    arguments += ["--sweep", "num_classes=500", *SMALL, "--json", str(json_file)]
    step.main(arguments)
    first, other = json.loads(json_file.read_text())["rows"]
    assert len(first["turns_ms"]) == 3
    assert 0 < other["cpu_ratio_10"] <= other["cpu_ratio"] <= other["cpu_ratio_90"]


def test_more_threads_than_cores_are_refused(capsys):
    with pytest.raises(SystemExit):
        step.main(["--threads", "5000"])
    assert re.search(r"may use \d+ cores, not 5000", capsys.readouterr().err)
    with pytest.raises(SystemExit):
        step.main(["--turns", "0"])
    assert "expected a whole number above 0; got '0'" in capsys.readouterr().err
