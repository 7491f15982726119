import json

import pytest

from lab.kernel_trees import tree_cost


@pytest.mark.slow
def test_command_line_writes_figures(tmp_path):
    path = tmp_path / "kernel_tree.json"
    shape = ["--num-classes", "500", "--dim", "8", "--projection-dims", "0", "4"]
    small = ["--num-sampled", "3", "--batch-size", "6", "--steps", "1"]
    tree_cost.main([*shape, *small, "--json", str(path)])
    report = json.loads(path.read_text())
    rows, others = report["rows"], report["other_samplers"]
    assert [row["projection_dim"] for row in rows] == [0, 4]
    assert all(row["sample_ms"] > 0 and row["update_ms"] > 0 for row in rows)
    assert rows[0]["sums_mb"] > rows[1]["sums_mb"] > 0
    assert [row["sampler"] for row in others] == ["uniform", "inverted_file_draws", "softmax"]
    assert all(row["sample_ms"] > 0 for row in others)
