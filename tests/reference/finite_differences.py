"""Gradients by central differences."""

import numpy as np


def finite_differences(problem, name, oracle, step=1e-5):
    """Returns the gradient of the sum of `problem.expected(oracle)` for attribute `name`."""
    exact = getattr(problem, name).astype("float64")
    gradient = np.zeros_like(exact)
    for index in np.ndindex(exact.shape):
        sums = []
        for sign in (1, -1):
            moved = exact.copy()
            moved[index] += sign * step
            setattr(problem, name, moved)
            sums.append(problem.expected(oracle).sum())
        gradient[index] = (sums[0] - sums[1]) / (2 * step)
    setattr(problem, name, exact.astype("float32"))
    return gradient
