"""Who is told when an optimizer has updated rows of a variable.

A structure that follows a table row by row, such as a tree of sums, must know which rows a step
has changed and what they were. Row-sparse optimizers tell it inside the step, when both are at
hand, so that nothing is left to do, or to save, between steps.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

from tf_largeout.replicas import replica_of

_ATTRIBUTE = "_largeout_observers"


def observe(variable: keras.Variable, method: Callable[[tf.Tensor, tf.Tensor], None]) -> None:
    """Has `method(ids, old_rows)` called right after each update of rows of `variable`.

    It runs on the replica whose rows they are, with integer `ids` `[n]`, which may repeat and
    on a GPU be -1, and `old_rows` `[n, ...]`, those rows as they were before. The method's
    object is not kept alive for it.
    """
    observers = [one for one in getattr(variable, _ATTRIBUTE, []) if one() is not None]
    setattr(variable, _ATTRIBUTE, [*observers, weakref.WeakMethod(method)])


@contextlib.contextmanager
def telling_observers(
    variable: keras.Variable, local: tf.Variable, ids: tf.Tensor | None = None
) -> Iterator[None]:
    """Around an update of rows: tells those who observe `variable`, if anybody does.

    Args:
        variable: What is observed.
        local: The `tf.Variable` behind it that is updated.
        ids: Integers `[n]`, the rows; None for all.
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
