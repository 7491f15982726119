import json
import types

import numpy as np
import pytest

from lab.vijayanarasimhan import inference, training
from tf_largeout.retrieval import LSHIndex

SMALL = ["--sample", "50", "--tasks", "synthetic"]


@pytest.mark.slow
def test_methods_are_compared_at_equal_steps_and_kept(tmp_path):
    arguments = [*SMALL, "--steps", "32", "--out", str(tmp_path)]
    report = training.main(arguments)
    runs = report["runs"]
    assert [run["method"] for run in runs] == training.COMPARED
    assert all(run["trained_steps"] == 32 and 0 <= run["p1"] <= 100 for run in runs)
    assert json.loads((tmp_path / "training.json").read_text())["runs"] == runs
    assert training.main(arguments)["runs"] == runs  # with their times: not repeated
    lines = training.table(runs).splitlines()
    assert len(lines) == 2 + len(runs) and "WTA softmax" in lines[2]


@pytest.mark.slow
def test_core_operations_find_what_the_library_finds_in_all_entries():
    rng = np.random.default_rng(0)
    rows, bias = rng.normal(size=[3000, 32]).astype("float32"), np.zeros(3000, "float32")
    index = LSHIndex(100, "wta", num_tables=10, num_hashes=2, bin_size=16).build(rows, bias)
    tables = index._built().tables
    ours = inference._searching(index._built().rows, tables, 100, 10 * len(rows))
    core = inference.core_search(types.SimpleNamespace(rows=rows, bias=bias), tables, 100)
    for query in rng.normal(size=[20, 1, 32]).astype("float32"):
        np.testing.assert_array_equal(core(query), ours(query))


@pytest.mark.slow
def test_the_recall_grows_with_the_number_of_tables(tmp_path):
    arguments = ["--task", "synthetic", "--seconds", "1", "--tables", "2", "50"]
    arguments += ["--candidates", "100", "--queries", "40", "--out", str(tmp_path)]
    report = inference.main(arguments)
    exact, few, many = (report["rows"][place] for place in (1, 2, 5))
    assert exact["search"] == "BruteForceIndex" and exact["recall"] == 1
    assert few["tables"] == 2 and many["tables"] == 50
    assert 0 <= few["recall"] < many["recall"] <= 1
    assert json.loads((tmp_path / "inference.json").read_text())["rows"] == report["rows"]
    assert (tmp_path / "inference.png").stat().st_size > 1000
