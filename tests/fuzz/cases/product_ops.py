"""Random calls of bfloat16 products."""

import numpy as np

from tests.fuzz import checks
from tests.fuzz.draws import Call
from tests.reference import class_scan as reference
from tf_largeout import ops


def rounded_product(draws):
    rows, depth, columns = draws.rows(), draws.size(), draws.size()
    options = {"transpose_a": draws.chance(0.5), "transpose_b": draws.chance(0.5)}
    a = draws.floats(*((depth, rows) if options["transpose_a"] else (rows, depth)))
    b = draws.floats(*((columns, depth) if options["transpose_b"] else (depth, columns)))

    def check(product):
        left, right = _rounded(a, options["transpose_a"]), _rounded(b, options["transpose_b"])
        checks.has_shape(product, len(left), right.shape[1])
        with np.errstate(all="ignore"):
            sizes = np.abs(left) @ np.abs(right)
            error = np.abs(product.numpy() - left @ right)
        known = sizes < 1e30
        assert (error <= 1e-5 * sizes + 1e-30)[known].all()

    return Call(ops.rounded_product, (a, b), options, check)


def _rounded(factor, transposed):
    """Rounds to bfloat16; overflow gives infinity."""
    with np.errstate(all="ignore"):
        rounded = np.float64(np.float32(reference.bfloat16(factor.numpy())))
    return rounded.T if transposed else rounded
