"""What asynchronous trainers do: steps on batches of their own."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf


def data(coordinator: Any, dataset_fn: Callable[[tf.Tensor], tf.data.Dataset]) -> Any:
    """A data set on each trainer."""

    def own() -> tf.data.Dataset:
        # What TensorFlow draws by its seeds would be the same in all trainers.
        seed = tf.cast(1e6 * tf.timestamp(), tf.int64)
        return dataset_fn(seed)

    return coordinator.create_per_worker_dataset(own)


def make_metrics(model: keras.Model, batch: Any) -> None:
    """Makes the variables of metrics, which Keras leaves to the first update of some.

    Args:
        model: The model.
        batch: The specs of what a data set gives.
    """

    @tf.function
    def update(batch: Any) -> None:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        model.compute_metrics(x, y, model(x, training=True), sample_weight)

    update.get_concrete_function(batch)  # traced, and never called


def steps(model: keras.Model, strategy: tf.distribute.Strategy) -> Any:
    """A function that does `count` steps on a trainer, of an iterator of its batches.

    It returns the sum of their losses, and what they add to each variable of the metrics:
    trainers that added it there at the same time would overwrite each other's.
    """
    variables = model.metrics_variables

    def nothing() -> list[tf.Tensor]:
        return [tf.zeros(one.shape, one.dtype) for one in variables]

    def train(batch: Any) -> list[tf.Tensor]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            loss = model.compute_loss(x, y, outputs, sample_weight, training=True)
            scaled = model.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, model.trainable_weights)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_weights, strict=True))
        scope = keras.StatelessScope(list(zip(variables, nothing(), strict=True)))
        with scope:
            model.compute_metrics(x, y, outputs, sample_weight)
        return [loss, *map(scope.get_current_value, variables)]

    @tf.function
    def several(batches: Any, count: int) -> list[tf.Tensor]:
        total = [tf.zeros([]), *nothing()]
        for _ in tf.range(count):
            more = strategy.run(train, args=(next(batches),))
            total = [old + new for old, new in zip(total, more, strict=True)]
        return total

    return several
