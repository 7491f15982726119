"""Who is told when an optimizer has updated rows of a variable.

A structure that follows a table row by row, such as a tree of sums, must know which rows a step
has changed and what they were. Row-sparse optimizers tell it inside the step, when both are at
hand, so that nothing is left to do, or to save, between steps.
"""

import contextlib
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

from tf_largeout.replicas import replica_of

_ATTRIBUTE = "_largeout_observers"


def observe(variable: keras.Variable, function: Callable[[tf.Tensor, tf.Tensor], None]) -> None:
    """Has `function(ids, old_rows)` called right after each update of rows of `variable`.

    It runs on the replica whose rows they are, with integer `ids` `[n]`, which may repeat and
    on a GPU be -1, and `old_rows` `[n, ...]`, those rows as they were before.
    """
    setattr(variable, _ATTRIBUTE, [*getattr(variable, _ATTRIBUTE, []), function])


@contextlib.contextmanager
def told(variable: keras.Variable, local: tf.Variable, ids: tf.Tensor) -> Iterator[None]:
    """Around an update of the rows `ids`: tells those who observe `variable`.

    Args:
        variable: What is observed.
        local: The `tf.Variable` behind it that is updated.
        ids: Integers `[n]`.
    """
    observers = getattr(variable, _ATTRIBUTE, [])
    old_rows = tf.gather(local, ids) if observers else None
    yield
    with replica_of(variable, local):
        for function in observers:
            function(ids, old_rows)
