import pytest

from tf_largeout.benchmarks import profile


@pytest.mark.slow
@pytest.mark.parametrize("method", ["ours", "stock_best"])
def test_parts_add_up_to_the_step(method, monkeypatch):
    monkeypatch.setattr(profile, "_BATCHES", 3)
    monkeypatch.setattr(profile.machine, "limits", lambda: {"gflops": 50.0, "gb_per_s": 10.0})
    shape = {"batch_size": 32, "num_sampled": 64, "dim": 16, "steps_per_execution": 2}
    row = profile.profile("synthetic", method, shape)
    assert tuple(row["parts_ms"]) == profile.PARTS
    assert sum(row["parts_ms"].values()) == pytest.approx(row["step_ms"])
    assert row["products_at_machine_rate_ms"] > 0 and row["rows_at_machine_rate_ms"] > 0
