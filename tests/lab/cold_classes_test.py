"""Tests of `lab.item_tower.cold_classes`."""

from lab.item_tower import cold_classes


def test_a_line_of_the_table_has_the_mean_of_the_seeds():
    figures = {"p1_warm": 50.0, "p1_cold": 30.0, "p1_all": 48.0, "psp5": 60.0}
    runs = [
        {"task": "place_names", "model": "tower", "seed": 0, **figures},
        {"task": "place_names", "model": "tower", "seed": 1, **figures, "p1_cold": 32.0},
    ]
    line = cold_classes.table(runs, "place_names").splitlines()[-1]
    assert "| tower | 50.0 ± 0.0 | 31.0 ± 1.4 |" in line
