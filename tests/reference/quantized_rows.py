"""Class rows with 8 bits per number, as numpy computes them."""

import numpy as np


def quantized(rows):
    """Rounds each row to the integers from -127 to 127, times its largest magnitude / 127."""
    rows = np.float32(rows)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    factors = np.divide(127, largest, out=np.zeros_like(largest), where=largest > 0)
    return np.rint(rows * factors) * (largest / np.float32(127))
