"""Random calls of row-sparse optimizer steps."""

import numpy as np
import tensorflow as tf

from tests.fuzz import checks
from tests.fuzz.draws import Call
from tf_largeout import ops


def row_adam(draws):
    rows = _Rows(draws)
    variable, velocity = rows.table(), rows.variable()
    momentum = rows.variable() if draws.chance(0.7) else None
    options = {name: draws.scalar() for name in ("beta_1", "beta_2", "epsilon", "weight_decay")}
    options["step"] = draws.attribute(draws.size())
    if draws.chance(0.5):
        last_step = np.zeros(rows.num_rows, np.int64) + draws.size()
        options["last_step"] = draws.variable(last_step)
    arguments = (variable, momentum, velocity, rows.values, rows.ids, draws.scalar())
    return rows.call(ops.row_adam, arguments, options)


def dense_adam(draws):
    rows = _Rows(draws)
    gradient = draws.floats(*rows.variable().shape)
    arguments = (rows.variable(), rows.variable(), rows.variable(), gradient, draws.scalar())
    options = {name: draws.scalar() for name in ("beta_1", "beta_2", "epsilon")}
    return Call(ops.dense_adam, arguments, options, lambda _: None)


def row_adagrad(draws):
    rows = _Rows(draws)
    arguments = (rows.table(), rows.variable(), rows.values, rows.ids, draws.scalar())
    options = {"epsilon": draws.scalar(), "weight_decay": draws.scalar()}
    return rows.call(ops.row_adagrad, arguments, options)


def row_rowwise_adagrad(draws):
    rows = _Rows(draws)
    accumulator = draws.variable(draws.floats(rows.num_rows))
    arguments = (rows.table(), accumulator, rows.values, rows.ids, draws.scalar())
    options = {"epsilon": draws.scalar(), "weight_decay": draws.scalar()}
    return rows.call(ops.row_rowwise_adagrad, arguments, options)


def row_momentum(draws):
    rows = _Rows(draws)
    momentum = rows.variable() if draws.chance(0.6) else None
    arguments = (rows.table(), momentum, rows.values, rows.ids, draws.scalar())
    options = {"decay": draws.scalar(), "weight_decay": draws.scalar()}
    options["nesterov"] = draws.chance(0.5)
    return rows.call(ops.row_momentum, arguments, options)


def merge_rows(draws):
    shape = (draws.rows(), *_width(draws))
    values = draws.floats(*shape)
    ids = draws.ids(shape[:1], 20, 0, draws.index_type())

    def check(merged):
        merged_values, unique_ids = merged
        checks.equal(unique_ids, np.unique(ids))
        checks.has_shape(merged_values, len(unique_ids), *values.shape[1:])
        if len(unique_ids) == len(ids):
            checks.equal(merged_values, values.numpy()[np.argsort(ids)])

    return Call(ops.merge_rows, (values, ids), {}, check)


def check_row_ids(draws):
    num_rows = draws.size()
    ids = draws.ids((draws.rows(),), num_rows, 0, draws.index_type())
    num_rows = draws.attribute(num_rows)

    def check(checked):
        checks.equal(checked, ids)
        checks.within(checked, 0, num_rows)

    return Call(ops.check_row_ids, (ids, num_rows), {}, check)


class _Rows:
    """Gradient rows, and the variables that they update."""

    def __init__(self, draws):
        self._draws = draws
        self._is_rounded = draws.number % 4 == 3
        self.num_rows, self._width = draws.rows(), _width(draws)
        number = draws.size() if self.num_rows else 0
        self.values = draws.floats(number, *self._width)
        self.ids = draws.ids((number,), self.num_rows, 0, draws.index_type())

    def table(self):
        """Returns a variable, every fourth time in bfloat16."""
        floats = self._draws.floats(self.num_rows, *self._width)
        if self._is_rounded:
            floats = tf.cast(floats, tf.bfloat16)
        return self._draws.variable(floats)

    def variable(self):
        return self._draws.variable(self._draws.floats(self.num_rows, *self._width))

    def call(self, function, arguments, options):
        """Returns the call, which must not change rows without a gradient."""
        if self._is_rounded:
            options["rounding"] = self._draws.ids((2,), 1000, 0)
        variables = self._draws.variables
        before = [variable.numpy() for variable in variables]

        def check(_):
            for variable, old in zip(variables, before, strict=True):
                touched = np.zeros(old.shape[:1], bool)
                touched[self.ids.numpy()] = True
                checks.equal(variable.numpy()[~touched], old[~touched])

        def check_refused():
            for variable, old in zip(variables, before, strict=True):
                checks.equal(variable, old)

        return Call(function, arguments, options, check, check_refused)


def _width(draws):
    """Returns the dimensions of a row."""
    return draws.pick(((draws.size(),), (draws.size(),), (), (2, draws.size())))
