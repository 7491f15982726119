"""Replicas of a `tf.distribute` strategy, their variables, and observers of updates of rows."""

import contextlib
import functools
import logging
import threading
import weakref
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

from tf_largeout.keras_internals import running_step

_updating = threading.local()


def replica_id() -> int:
    """Returns the number of this replica under a strategy; 0 without a strategy."""
    context = tf.distribute.get_replica_context()
    if context is None:
        return getattr(_updating, "replica_id", 0)
    return int(tf.get_static_value(context.replica_id_in_sync_group))


@contextlib.contextmanager
def replica_of(variable: keras.Variable, local: tf.Variable) -> Iterator[None]:
    """Context in which `replica_id` is that of `local`: updates are outside of replicas."""
    before = getattr(_updating, "replica_id", 0)
    components = _components(variable)
    _updating.replica_id = next((i for i, one in enumerate(components) if one is local), 0)
    try:
        yield
    finally:
        _updating.replica_id = before


def local_variable(variable: keras.Variable) -> tf.Variable:
    """Returns the `tf.Variable` of this replica: a mirrored one would be read whole."""
    if not isinstance(variable.value, tf.distribute.DistributedValues):
        return variable.value
    components = _components(variable)
    return components[replica_id() % len(components)]


def gathered(values: tf.Tensor) -> tf.Tensor:
    """Concatenates `[n]` of all replicas. All must call it, so not in a branch of `tf.cond`."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return values
    return context.all_gather(values, axis=0)


def summed(value: tf.Tensor) -> tf.Tensor:
    """Returns the sum of the values of all replicas; see `gathered` for calling it."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def _components(variable: keras.Variable) -> tuple[tf.Variable, ...]:
    """Returns the variables of the replicas of this worker, in the order of the replicas."""
    value = variable.value
    strategy = getattr(value, "distribute_strategy", None) or tf.distribute.get_strategy()
    return strategy.experimental_local_results(value)


def warn_if_fit_will_fail() -> None:
    """Warns once that Keras's `fit` fails under `MultiWorkerMirroredStrategy`.

    Keras fails before it calls a layer, so layers call it when they create variables.
    """
    strategy = tf.distribute.get_strategy()
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        cluster = strategy.cluster_resolver.cluster_spec()
        if sum(cluster.num_tasks(job) for job in cluster.jobs) > 1:
            _warn_about_fit()


@functools.cache
def _warn_about_fit() -> None:
    logging.getLogger("tf_largeout").warning(
        "Keras 3's `fit`, `evaluate` and `predict` fail under MultiWorkerMirroredStrategy "
        "(https://github.com/keras-team/keras/issues/20585). docs/guides/distribution.md, "
        "section Replicas, has a model class and a training loop that work. Or use "
        "`LargeOutput(num_shards=...)`, or `tf_largeout.distribute.fit`."
    )


_ATTRIBUTE = "_largeout_observers"


def observe(variable: keras.Variable, method: Callable[[tf.Tensor, tf.Tensor], None]) -> None:
    """Calls `method(ids, old_rows)` right after each update of rows of `variable`.

    Row-sparse optimizers do so inside the step, on the replica that owns the rows. `ids` are
    integers `[n]`, which may repeat, or be -1 for no row; `old_rows` are `[n, ...]`. Only a
    weak reference to the method's object is kept.
    """
    observers = [one for one in getattr(variable, _ATTRIBUTE, []) if one() is not None]
    setattr(variable, _ATTRIBUTE, [*observers, weakref.WeakMethod(method)])


@contextlib.contextmanager
def notify_observers(
    variable: keras.Variable, local: tf.Variable, ids: tf.Tensor | None = None
) -> Iterator[tf.Tensor | None]:
    """Context around an update of rows `ids`, or all, of `local`: notifies the observers.

    Its value is `ids`, for the update. In a step that XLA compiles, these depend on the rows
    that the observers get: otherwise XLA would copy the whole variable before the update.
    """
    observers = []
    for one in getattr(variable, _ATTRIBUTE, []):
        if (method := one()) is not None:
            observers.append(method)
    if not observers:
        yield ids
        return
    if ids is None:
        ids = tf.range(local.shape[0], dtype=tf.int64)
    old_rows = tf.gather(local, tf.maximum(ids, 0))  # -1: a step without rows of this variable
    if tf.inside_function() and running_step().is_compiled:
        ids = tf.where(tf.reduce_all(old_rows == old_rows), ids, -1)  # always true, if no NaN
    yield ids
    with replica_of(variable, local):
        for method in observers:
            method(ids, old_rows)
