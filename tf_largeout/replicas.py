"""Which replica of a `tf.distribute` strategy runs this code, and its own variables."""

import keras
import tensorflow as tf


def replica_id() -> int:
    """The number of this replica under a strategy; 0 without one."""
    context = tf.distribute.get_replica_context()
    return 0 if context is None else int(tf.get_static_value(context.replica_id_in_sync_group))


def is_first_replica() -> bool:
    """Whether this is the replica that speaks for all."""
    context = tf.distribute.get_replica_context()
    return context is None or tf.get_static_value(context.replica_id_in_sync_group) == 0


def local_variable(variable: keras.Variable) -> tf.Variable:
    """The `tf.Variable` behind `variable` that lives with this replica.

    A gather from the mirrored variable as a whole would read all of it.
    """
    # Those of this worker, whose replicas are numbered one after the other.
    components = tf.distribute.get_strategy().experimental_local_results(variable.value)
    return components[replica_id() % len(components)]
