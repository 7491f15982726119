"""Tests of `lab.item_tower.cold_classes`."""

import numpy as np

from lab.item_tower import cold_classes
from tf_largeout.datasets.ragged import Ragged


def test_labels_are_filtered_and_padded_to_a_width():
    ragged = Ragged.from_lengths(np.array([5, -1, 7, 8, 9, -1]), [3, 0, 3])
    kept = cold_classes._only(ragged, ragged.values >= 0)
    np.testing.assert_array_equal(
        cold_classes._padded(kept, 3), [[5, 7, -1], [-1, -1, -1], [8, 9, -1]]
    )
    np.testing.assert_array_equal(cold_classes._padded(kept, 1), [[5], [-1], [8]])


def test_a_line_of_the_table_has_the_mean_of_the_seeds():
    figures = {"p1_warm": 50.0, "p1_cold": 30.0, "p1_all": 48.0, "psp5": 60.0}
    runs = [
        {"task": "place_names", "model": "tower", "seed": 0, **figures},
        {"task": "place_names", "model": "tower", "seed": 1, **figures, "p1_cold": 32.0},
    ]
    line = cold_classes.table(runs, "place_names").splitlines()[-1]
    assert "| tower | 50.0 ± 0.0 | 31.0 ± 1.4 |" in line
