"""Callbacks that run after an optimizer updates rows of a variable.

A structure that is updated row by row, such as a tree of sums, must know which rows a step
changed, and their previous values. Row-sparse optimizers notify it inside the step, where both
are available. So nothing has to be done, or saved, between steps.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

from tf_largeout.variables.replicas import replica_of

_ATTRIBUTE = "_largeout_observers"


def observe(variable: keras.Variable, method: Callable[[tf.Tensor, tf.Tensor], None]) -> None:
    """Calls `method(ids, old_rows)` right after each update of rows of `variable`.

    It runs on the replica that owns the rows. `ids` are integers `[n]`. They may repeat,
    and on a GPU be -1. `old_rows`, `[n, ...]`, are the rows before the update. Only a
    weak reference to the method's object is kept.
    """
    observers = [one for one in getattr(variable, _ATTRIBUTE, []) if one() is not None]
    setattr(variable, _ATTRIBUTE, [*observers, weakref.WeakMethod(method)])


@contextlib.contextmanager
def notify_observers(
    variable: keras.Variable, local: tf.Variable, ids: tf.Tensor | None = None
) -> Iterator[None]:
    """Context around an update of rows: notifies the observers of `variable`, if there are any.

    Args:
        variable: The observed variable.
        local: The `tf.Variable` behind it that is updated.
        ids: Integers `[n]`, the updated rows; None for all rows.
    """
    methods = [one() for one in getattr(variable, _ATTRIBUTE, [])]
    observers = [method for method in methods if method is not None]
    if not observers:
        yield
        return
    if ids is None:
        ids = tf.range(local.shape[0], dtype=tf.int64)
    old_rows = tf.gather(local, ids)
    yield
    with replica_of(variable, local):
        for method in observers:
            method(ids, old_rows)
