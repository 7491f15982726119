import numpy as np

from tf_largeout.datasets.ragged import Ragged


def test_rows_are_filtered_and_padded_to_a_width():
    ragged = Ragged.from_lengths(np.array([5, -1, 7, 8, 9, -1]), [3, 0, 3])
    kept = ragged.filtered(ragged.values >= 0)
    np.testing.assert_array_equal(kept.padded(3, -1), [[5, 7, -1], [-1, -1, -1], [8, 9, -1]])
    first = kept.filtered(kept.places < 1)
    np.testing.assert_array_equal(first.padded(1, -1), [[5], [-1], [8]])
