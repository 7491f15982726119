import json

import pytest
import tensorflow as tf

from lab.kernel_trees import absolute, absolute_text
from lab.shared.methods import METHODS
from tf_largeout import losses


def test_methods_with_the_absolute_softmax_rank_by_magnitude():
    for name in absolute.NEGATIVES:
        method = METHODS[name]
        is_absolute = isinstance(method.loss(), losses.AbsoluteSoftmaxLoss)
        assert is_absolute == name.endswith("_absolute")
        assert is_absolute == (method.score(tf.constant(-2.0)) == 2)


def test_the_table_has_means_and_deviations():
    logs = [
        {
            "title": title,
            "settings": {"num_sampled": 32},
            "points": [{"steps": 10 * p1, "p1": p1, "loss": 2.0}],
        }
        for title, p1 in [("a", 3), ("b", 5), ("a", 4)]
    ]
    assert absolute.table(logs).splitlines()[2:] == [
        "| a | 32 | 35 | 3.5 ± 0.7 | 2.00 ± 0.00 |",
        "| b | 32 | 50 | 5.0 | 2.00 |",
    ]


def test_the_table_of_texts_has_means_and_deviations():
    runs = [
        {"method": "a", "num_sampled": 1024, "steps": 7, "test_p1": p1, "test_perplexity": 50.0}
        for p1 in (3.0, 4.0)
    ]
    assert absolute_text.table(runs).splitlines()[2:] == [
        "| a | 1,024 | 2 | 7 ± 0 | 3.5 ± 0.7 | 50.0 ± 0.0 |"
    ]


@pytest.mark.slow
def test_runs_are_kept(tmp_path):
    arguments = "--task synthetic --methods frequency_own kernel_tree_absolute --seconds 0.5"
    paths = ["--out", str(tmp_path), "--json", str(tmp_path / "report.json")]
    report = absolute.main([*arguments.split(), "--runs", "1", "2", *paths])
    assert list(report["methods"]) == [
        f"{method}-32, run {number}"
        for number in (1, 2)
        for method in ("frequency_own", "kernel_tree_absolute")
    ]
    assert json.loads((tmp_path / "report.json").read_text()) == report
    assert absolute.main([*arguments.split(), "--runs", "1", "2", *paths]) == report
