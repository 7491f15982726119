import json

import numpy as np
import pytest

from benchmarks import retrieval
from benchmarks.methods.retrieval_methods import METHODS

FAST = ["--k", "5", "3", "--batches", "1", "4", "--queries", "40", "--seconds", "0.01"]
EXACT = {"tf.matmul + tf.math.top_k", "BruteForceIndex", "core export"}
SOME = ["tf.matmul + tf.math.top_k", "InvertedFileIndex", "retrieval.build(recall=0.95)"]
OTHERS = ["BruteForceIndex", "core export", "LSHIndex, WTA"]


def _weights(path):
    random = np.random.default_rng(0)
    rows = random.normal(size=[400, 8]).astype("float32")
    bias = random.normal(size=400).astype("float32")
    queries = random.normal(size=[100, 8]).astype("float32")
    labels = np.argmax(queries @ rows.T + bias, axis=1)
    np.savez(path, W=rows, b=bias, H=queries, y=labels)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("methods", [SOME, OTHERS])
def test_command_line_writes_figures_and_picture(methods, tmp_path):
    json_file, png_file = tmp_path / "retrieval.json", tmp_path / "retrieval.png"
    arguments = ["--weights", _weights(tmp_path / "w.npz"), *FAST, "--methods", *methods]
    retrieval.main([*arguments, "--json", str(json_file), "--png", str(png_file)])
    rows = json.loads(json_file.read_text())["rows"]
    assert {row["method"] for row in rows} == set(methods)
    for method in EXACT & set(methods):
        found = [row for row in rows if row["method"] == method and row["setting"] == "exact"]
        assert [(row["k"], row["batch"]) for row in found] == [(5, 1), (5, 4), (3, 1), (3, 4)]
        assert all(row["recall"] > 0.99 and row["p1"] > 99 for row in found)
    assert all(0 < row["p50_ms"] <= row["p99_ms"] for row in rows)
    assert all(row["cpu_ms"] > 0 and row["build_cpu_s"] >= 0 for row in rows)
    for row in rows:
        if row["setting"].startswith("target 0.95"):
            assert row["recall"] > 0.85
    assert png_file.stat().st_size > 10_000


@pytest.mark.slow
def test_each_installed_library_finds_classes(tmp_path):
    rivals = ["HnswIndex", "faiss flat", "faiss IVF", "hnswlib", "usearch", "ScaNN"]
    assert set(rivals) <= set(METHODS)
    arguments = ["--weights", _weights(tmp_path / "w.npz"), *FAST, "--methods", *rivals]
    for row in retrieval.main(arguments)["rows"]:
        assert 0 < row["recall"] <= 1
