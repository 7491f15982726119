"""Where a layer is being called: in which kind of step, on which replica."""

import inspect

import keras
import tensorflow as tf

_TRAINING_OF_STEP = {"train_step": True, "test_step": False, "predict_step": False}


def training_of_step() -> bool | None:
    """Whether the step of a model that is on the call stack trains; None where none is.

    Keras tells the layers of a subclassed model that they train only if the model's own
    `call` takes `training`. Without this look a sampled loss would turn exact there, and
    each step O(num_classes), without a word.
    """
    frame = inspect.currentframe()
    while frame is not None:
        name = frame.f_code.co_name.removeprefix("tf__")  # AutoGraph's
        if name in _TRAINING_OF_STEP and isinstance(frame.f_locals.get("self"), keras.Model):
            return _TRAINING_OF_STEP[name]
        frame = frame.f_back
    return None


def replica_id() -> int:
    """The number of this replica under a `tf.distribute` strategy, else 0."""
    context = tf.distribute.get_replica_context()
    return 0 if context is None else int(tf.get_static_value(context.replica_id_in_sync_group))


def local_variable(variable: keras.Variable) -> tf.Variable:
    """The `tf.Variable` behind `variable` that lives with this replica."""
    # Those of this worker, whose replicas are numbered one after the other.
    components = tf.distribute.get_strategy().experimental_local_results(variable.value)
    return components[replica_id() % len(components)]
