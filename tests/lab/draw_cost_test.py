import json

import numpy as np
import pytest

from lab.blanc_rendle import draw_cost
from tf_largeout.papers.kernel_tree import kernel_tree_ops


def test_one_query_that_draws_all_classes_reads_all_nodes_but_the_root():
    num_classes, leaf_size, dim = 150, 7, 5
    shape = kernel_tree_ops.kernel_tree_shape(num_classes, dim, leaf_size)
    found = draw_cost.work(np.arange(num_classes)[np.newaxis], num_classes, leaf_size, dim)
    numbers = (shape[0] - 1) * shape[1] + num_classes * dim
    assert found == {
        "visits": shape[0],
        "multiplications": numbers,
        "megabytes": pytest.approx(4e-6 * numbers),
    }


def test_queries_share_what_they_read_but_not_their_visits():
    ids = np.array([[0, 0, 9], [9, 15, 0]])  # leaves 0, 2, 3 below one root
    found = draw_cost.work(ids, 16, 4, 3)
    width = kernel_tree_ops.kernel_tree_shape(16, 3, 4)[1]
    products = {"root": 4 * width, "leaf": 4 * 3}
    assert found == {
        "visits": 2 + 5,
        "multiplications": 2 * products["root"] + 5 * products["leaf"],
        "megabytes": pytest.approx(4e-6 * (products["root"] + 3 * products["leaf"])),
    }


def test_fits_find_the_times_of_products_and_bytes():
    works = np.random.default_rng(0).uniform(1, 100, [6, 2])
    rows = [
        {"dim": 8, "cpu_ms": 3 * a + 0.5 * b, "multiplications": 1e6 * a, "megabytes": b}
        for a, b in works
    ]
    (fit,) = draw_cost.fits(rows)
    assert fit == pytest.approx(
        {"dim": 8, "ns_per_multiplication": 3, "ns_per_byte": 0.5, "largest_error": 0}
    )


@pytest.mark.slow
def test_times_and_work_are_written(tmp_path):
    path = tmp_path / "draw_cost.json"
    arguments = ["--shapes", "300x4", "5000x4", "--num-sampled", "1", "8", "--draws", "64"]
    draw_cost.main([*arguments, "--batch-size", "4", "--json", str(path)])
    report = json.loads(path.read_text())
    sizes = [(row["num_classes"], row["num_sampled"]) for row in report["rows"]]
    assert sizes == [(300, 1), (300, 8), (5000, 1), (5000, 8)]
    for row in report["rows"]:
        assert row["cpu_ms"] >= 0 and 0 < row["megabytes"] <= row["tree_megabytes"]
    assert len(report["fits"]) == 1
