"""Random calls of products of matrices."""

import numpy as np

from tests.fuzz import checks
from tests.fuzz.draws import Call
from tf_largeout import ops

_LEAST = float(np.finfo(np.float32).tiny)


def matmul(draws):
    rows, depth, width = draws.rows(), draws.size(), draws.size()
    transpose_a, transpose_b = draws.pick(((False, False), (True, False), (False, True)))
    a = draws.floats(*((depth, rows) if transpose_a else (rows, depth)))
    b = draws.floats(*((width, depth) if transpose_b else (depth, width)))
    if draws.odd():
        transpose_a, transpose_b = draws.chance(0.5), draws.chance(0.5)

    def check(product):
        left, right = (a.numpy().T if transpose_a else a.numpy()), b.numpy()
        right = right.T if transpose_b else right
        checks.has_shape(product, left.shape[0], right.shape[1])
        with np.errstate(all="ignore"):
            left, right = np.float64(left), np.float64(right)
            expected = left @ right
            # Threads of TensorFlow take numbers below the least normal one for 0.
            large_left, large_right = (np.maximum(np.abs(one), _LEAST) for one in (left, right))
            size = large_left @ large_right
        # Sums that may overflow on the way are left out.
        known = np.isfinite(expected) & (size < 1e37)
        error = np.abs(product.numpy()[known] - expected[known])
        lost = _LEAST * (left.shape[1] + large_left.sum(1)[:, None] + large_right.sum(0))[known]
        assert np.all(error <= 1e-4 * size[known] + lost)

    options = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    return Call(ops.matmul, (a, b), options, check)
