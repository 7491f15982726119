"""The training steps of asynchronous trainers."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf


def data(coordinator: Any, dataset_fn: Callable[[tf.Tensor], tf.data.Dataset]) -> Any:
    """Creates a dataset on each trainer."""

    def dataset() -> tf.data.Dataset:
        # TensorFlow's own seeds would be the same on all trainers.
        seed = tf.cast(1e6 * tf.timestamp(), tf.int64)
        return dataset_fn(seed)

    return coordinator.create_per_worker_dataset(dataset)


def make_metrics(model: keras.Model, batch: Any) -> None:
    """Creates all variables of the metrics now. Keras would create some in the first update.

    Args:
        model: The model.
        batch: The `element_spec` of a dataset.
    """

    @tf.function
    def update(batch: Any) -> None:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        model.compute_metrics(x, y, model(x, training=True), sample_weight)

    update.get_concrete_function(batch)  # traced, but not called


def steps(model: keras.Model, strategy: tf.distribute.Strategy) -> Any:
    """Returns a function that does `count` steps on a trainer with an iterator of batches.

    The function returns the sum of the losses, and the change of each variable of the metrics.
    The trainers do not update these variables, because concurrent updates would overwrite each
    other.
    """
    variables = model.metrics_variables

    def zeros() -> list[tf.Tensor]:
        return [tf.zeros(one.shape, one.dtype) for one in variables]

    def train(batch: Any) -> list[tf.Tensor]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            loss = model.compute_loss(x, y, outputs, sample_weight, training=True)
            scaled = model.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, model.trainable_weights)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_weights, strict=True))
        scope = keras.StatelessScope(list(zip(variables, zeros(), strict=True)))
        with scope:
            model.compute_metrics(x, y, outputs, sample_weight)
        return [loss, *map(scope.get_current_value, variables)]

    @tf.function
    def train_steps(batches: Any, count: int) -> list[tf.Tensor]:
        total = [tf.zeros([]), *zeros()]
        for _ in tf.range(count):
            more = strategy.run(train, args=(next(batches),))
            total = [old + new for old, new in zip(total, more, strict=True)]
        return total

    return train_steps
