"""Rows of a table that a step reads by id, and the sparse form of their gradient.

JAX's derivative with respect to a table is a dense array of the size of the table. `lookup` has
this derivative, so any optimizer can use it. In addition, it registers the rows of the
derivative by the identity of the dense array. An optimizer that asks for them with
`row_gradient` does not read the dense array, and XLA removes it from the step.

If something changes the array on its way to the optimizer, such as a loss scale or the border
of a jitted function, no rows are found for it. The result is then right, but dense.
"""

import weakref
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import keras
from keras.src.backend.common.variables import AutocastScope

try:
    from jax.extend.core import get_opaque_trace_state
except ImportError:  # JAX 0.8 or older
    from jax.core import get_opaque_trace_state

_VIEW = "_largeout_view"
_LOOKED_UP = "_largeout_looked_up"
_registered: dict[int, tuple[Any, "RowGradient"]] = {}


class RowGradient(NamedTuple):
    """The rows of the gradient of a table; all others are 0."""

    ids: jax.Array  # int32 [n]; they may repeat, those outside of the table have no effect
    values: jax.Array  # float32 [n, ...]


def value_of(variable: keras.Variable) -> jax.Array:
    """Returns the value of a variable in its own dtype, also under mixed precision."""
    with AutocastScope(None):
        return variable.value


class Table:
    """A variable, float32 or bfloat16 `[num_rows, dim]` or `[num_rows]`, as a step reads it.

    `value` is the value of `variable` when this object was made. In a step it is a tracer.
    """

    def __init__(self, variable: keras.Variable) -> None:
        self.variable, self.value = variable, value_of(variable)

    def read(self, ids: jax.Array) -> jax.Array:
        """Returns rows, float32 `[..., dim]`, whose gradient is only dense; see `lookup`."""
        return _gather(self.value, ids)

    def lookup(self, ids: jax.Array) -> jax.Array:
        """Returns the rows of int32 ids `[...]`, float32 `[..., dim]`; zeros for padding, -1.

        Other ids outside of the table also give zeros, and have no gradient.
        """
        view = getattr(self.variable, _VIEW, None)
        if view is None or view.source is not self.value:
            view = _View(self.variable, self.value)
            if not view.is_differentiated:
                view.source = view.table = None  # else JAX's cache of functions keeps them
                return self.read(ids)
            setattr(self.variable, _VIEW, view)
            setattr(self.variable, _LOOKED_UP, True)
        return view.rows(ids)


def row_gradient(gradient: Any) -> RowGradient | None:
    """Returns the rows of a gradient, or None if it is not known to be sparse."""
    _, rows = _registered.get(id(gradient), (None, None))
    return rows


def was_looked_up(variable: keras.Variable) -> bool:
    """Returns whether a derivative has read rows of a variable since the last call."""
    found = getattr(variable, _LOOKED_UP, False)
    if found:
        setattr(variable, _LOOKED_UP, False)
    return found


class _View:
    """A table in one derivative. All lookups read `table`, so `backward` gets their sum."""

    def __init__(self, variable: keras.Variable, source: jax.Array) -> None:
        self.source, self.is_differentiated = source, False
        self._variable = variable
        self._parts: list[Any] = []  # trace, ids and values of each lookup
        view = jax.custom_vjp(lambda table: table)
        view.defvjp(self._forward, self._backward)
        self.table = view(source)

    def _forward(self, table: jax.Array) -> tuple[jax.Array, None]:
        self.is_differentiated = True
        return table, None

    def _backward(self, _: None, gradient: jax.Array) -> tuple[jax.Array]:
        if getattr(self._variable, _VIEW, None) is self:
            setattr(self._variable, _VIEW, None)
        traces, ids, values = zip(*self._parts, strict=True)
        # In a checkpoint or a loop, parts have other traces, in which the optimizer is not.
        if all(trace == get_opaque_trace_state() for trace in traces):
            _register(gradient, RowGradient(jnp.concatenate(ids), jnp.concatenate(values)))
        return (gradient,)

    def rows(self, ids: jax.Array) -> jax.Array:
        table = self.table
        shape, dtype = table.shape, table.dtype
        gather = jax.custom_vjp(_gather)

        def backward(ids: jax.Array, values: jax.Array) -> tuple[jax.Array, None]:
            ids, values = ids.reshape(-1), values.reshape(-1, *shape[1:])
            self._parts.append((get_opaque_trace_state(), ids, values))
            places = jnp.where(ids < 0, shape[0], ids)
            zeros = jnp.zeros(shape, dtype)
            return zeros.at[places].add(values.astype(dtype), mode="drop"), None

        gather.defvjp(lambda table, ids: (_gather(table, ids), ids), backward)
        return gather(table, ids)


def _gather(table: jax.Array, ids: jax.Array) -> jax.Array:
    places = jnp.where(ids < 0, table.shape[0], ids)
    rows = table.at[places].get(mode="fill", fill_value=0)
    return rows.astype(jnp.float32)


def _register(gradient: jax.Array, rows: RowGradient) -> None:
    key = id(gradient)
    forget = weakref.ref(gradient, lambda _: _registered.pop(key, None))
    _registered[key] = forget, rows
