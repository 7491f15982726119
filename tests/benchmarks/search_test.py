import json

import numpy as np
import pytest

from benchmarks import search

SHAPE = ["--batch_size", "8", "--k", "10", "--steps", "3"]


@pytest.mark.slow
def test_command_line_writes_figures_and_picture(tmp_path):
    json_file, png_file = tmp_path / "search.json", tmp_path / "search.png"
    settings = ["exact", "inverted file, 4 probes", "inverted file, 64 probes"]
    settings.append("simhash tables, 512 met most")
    arguments = ["--num_classes", "2000", "--dim", "16", *SHAPE, "--settings", *settings]
    search.main([*arguments, "--json", str(json_file), "--png", str(png_file)])
    rows = json.loads(json_file.read_text())["rows"]
    assert [row["setting"] for row in rows] == settings
    exact, few, many, met = (row["recall"] for row in rows)
    assert exact == 1.0 and 0 < few < many <= 1.0 and met > 0
    assert all(row["ms"] > 0 for row in rows)
    assert rows[1]["state_mb"] > 2000 * 28 / 2**20
    assert png_file.stat().st_size > 10_000


@pytest.mark.slow
def test_weights_come_from_a_file(tmp_path):
    random = np.random.default_rng(0)
    path = tmp_path / "weights.npz"
    bias = np.where(np.arange(300) < 10, 100.0, 0.0)  # these ten are the best of every query
    np.savez(path, W=random.normal(size=[300, 4]), b=bias, H=random.normal(size=[5, 4]))
    report = search.main(
        ["--weights", str(path), *SHAPE, "--settings", "inverted file, 64 probes"]
    )
    assert report["num_classes"] == 300 and report["dim"] == 4
    assert report["rows"][0]["recall"] > 0.5
