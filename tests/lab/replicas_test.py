import json

import pytest

from lab.distribution import replicas


@pytest.mark.slow
def test_replicas_are_compared_with_one_device(tmp_path):
    shape = "--num-classes 300 --dim 8 --batch-size 16 --num-sampled 20 --steps 8 --rounds 1"
    replicas.main([*shape.split(), "--json", f"{tmp_path}/replicas.json"])
    rows = json.loads((tmp_path / "replicas.json").read_text())["rows"]
    assert [row["replicas"] for row in rows] == [1, 2]
    assert all(row["steps"] == 8 and row["ms"] > 0 for row in rows)
