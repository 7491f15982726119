"""Which replica of a `tf.distribute` strategy runs this code, and its own variables."""

import contextlib
import threading
from collections.abc import Iterator

import keras
import tensorflow as tf

_updating = threading.local()


def replica_id() -> int:
    """The number of this replica under a strategy; 0 without one."""
    context = tf.distribute.get_replica_context()
    if context is None:
        return getattr(_updating, "replica_id", 0)
    return int(tf.get_static_value(context.replica_id_in_sync_group))


def is_first_replica() -> bool:
    """Whether this is the replica that speaks for all."""
    return replica_id() == 0


@contextlib.contextmanager
def replica_of(variable: keras.Variable, local: tf.Variable) -> Iterator[None]:
    """Inside, this is the replica, of this worker, whose part of `variable` is `local`.

    For optimizers: a strategy updates the replicas' variables one by one, outside of replicas.
    """
    before = getattr(_updating, "replica_id", 0)
    components = _components(variable)
    _updating.replica_id = next((i for i, one in enumerate(components) if one is local), 0)
    try:
        yield
    finally:
        _updating.replica_id = before


def local_variable(variable: keras.Variable) -> tf.Variable:
    """The `tf.Variable` behind `variable` that lives with this replica.

    A gather from the mirrored variable as a whole would read all of it.
    """
    components = _components(variable)
    return components[replica_id() % len(components)]


def gathered(values: tf.Tensor) -> tf.Tensor:
    """What all replicas have, `[n]` each, one after the other: the same on all of them.

    To be called by all replicas alike, not in a branch of `tf.cond`.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return values
    return context.all_gather(values, axis=0)


def summed(value: tf.Tensor) -> tf.Tensor:
    """The sum of the numbers that the replicas have; to be called as `gathered`."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def _components(variable: keras.Variable) -> tuple[tf.Variable, ...]:
    """The variables of this worker's replicas, which are numbered one after the other."""
    value = variable.value
    strategy = getattr(value, "distribute_strategy", None) or tf.distribute.get_strategy()
    return strategy.experimental_local_results(value)
