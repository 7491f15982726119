import numpy as np
import pytest
import tensorflow as tf

from lab.speed import products


@pytest.mark.parametrize("layout", products.LAYOUTS)
def test_each_layout_is_the_product_of_its_name(layout):
    rng = np.random.default_rng(0)
    f, w, g = (rng.normal(size=size) for size in ([3, 2], [5, 2], [3, 5]))
    expected = {"logits": f @ w.T, "features": g @ w, "rows": g.T @ f}[layout.split(":")[0]]
    found = products.LAYOUTS[layout](*map(tf.constant, (f, w, g)))
    np.testing.assert_allclose(found, expected)


@pytest.mark.slow
def test_products_and_steps_of_both_libraries_are_measured(capsys):
    arguments = ["--shapes", "8,16,4", "--calls", "2", "--num-classes", "100", "--steps", "4"]
    report = products.main(arguments)
    (row,) = report["products"]
    assert row["gflops"].keys() == products.LIBRARIES.keys()
    assert all(rate > 0 for rates in row["gflops"].values() for rate in rates.values())
    fast, slow = report["steps"][0]["rows"]
    assert (fast["library"], slow["library"]) == ("oneDNN", "Eigen") and slow["cpu_ratio"] > 0
    assert "| 8 x 16 x 4 |" in capsys.readouterr().out
