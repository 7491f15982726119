"""The comparison of a GPU with the CPU, with a second CPU device in place of the GPU."""

import pytest

from benchmarks import gpu_check

DIFFERENCES = dict.fromkeys(gpu_check._TOLERANCES, 0.0)


@pytest.fixture(autouse=True)
def _ops(monkeypatch):
    monkeypatch.setenv("LARGEOUT_OPS", "stock")  # which `main` sets for its processes


def test_without_a_gpu_an_error_says_what_to_install():
    with pytest.raises(SystemExit, match="finds no GPU. Install `tensorflow"):
        gpu_check.main([])


def test_differences_and_failed_runs_are_not_good():
    assert gpu_check.is_good({"differences": DIFFERENCES})
    assert not gpu_check.is_good({"differences": {**DIFFERENCES, "rows": 0.1}})
    assert not gpu_check.is_good({"differences": {**DIFFERENCES, "losses": float("nan")}})
    assert not gpu_check.is_good({"differences": {}, "error": "the process was killed"})


@pytest.mark.slow
def test_a_second_cpu_device_gives_the_results_of_the_first(tmp_path, capsys):
    gpu_check.main(["--device", "CPU:1", "--small", "--modes", "op by op"])
    assert "All results agree" in capsys.readouterr().out
