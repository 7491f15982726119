import json

import pytest

from lab.retrieval import hashing


@pytest.mark.slow
def test_every_hash_is_measured_and_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(hashing.machine, "memory_bandwidth", lambda: 8.0)
    path = tmp_path / "report.json"
    shape = ["--num_rows", "1000", "--dim", "16", "--num_tables", "4", "--steps", "2"]
    report = hashing.main([*shape, "--json", str(path)])
    assert [row["kind"] for row in report["rows"]] == list(hashing.KINDS)
    assert report["limit_ms"] == 1000 * (16 + 4) * 4 / 8e9 * 1e3
    for row in report["rows"]:
        assert 0 < row["ms"] and row["rows_per_s"] == 1e6 / row["ms"]
        assert row["share_of_limit"] == report["limit_ms"] / row["ms"]
    assert json.loads(path.read_text())["rows"] == report["rows"]
