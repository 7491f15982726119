"""Random calls of bag sums."""

import numpy as np

from tests.fuzz import checks
from tests.fuzz.draws import Call
from tf_largeout import ops
from tf_largeout.ops.library import gen_ops


def bag_sums(draws):
    table, ids, weights = arguments = _bags(draws, draws.size())

    def check(sums):
        checks.has_shape(sums, ids.shape[0], table.shape[1])
        checks.within(ids, -1, table.shape[0])
        empty = np.all(ids.numpy() == -1, axis=1)
        checks.equal(sums.numpy()[empty], 0.0)

    return Call(ops.bag_sums, arguments, {"differentiate_weights": draws.chance(0.5)}, check)


def largeout_bag_sums_grad(draws):
    dim = draws.size()
    table, ids, weights = _bags(draws, dim)
    d_sums = draws.floats(ids.shape[0] if ids.shape.rank else 1, dim)
    arguments = (getattr(table, "handle", table), ids, weights, d_sums)

    def check(gradient):
        row_ids, d_rows, shape = gradient
        checks.within(ids, -1, table.shape[0])
        distinct = np.unique(ids)
        checks.equal(row_ids, distinct[distinct >= 0])
        checks.has_shape(d_rows, len(row_ids), table.shape[1])
        checks.equal(shape, table.shape)

    return Call(gen_ops.largeout_bag_sums_grad, arguments, {}, check)


def _bags(draws, dim):
    num_rows = draws.size(1)
    table = draws.variable(draws.floats(num_rows, dim))
    shape = (draws.rows(), draws.size())
    return table, draws.ids(shape, num_rows), draws.floats(*shape)
