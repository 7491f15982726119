"""`fit`: trains a model asynchronously on several machines."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import real_number, whole_number
from tf_largeout.variables import cluster

DatasetFunction = Callable[[tf.Tensor], tf.data.Dataset]

_INSTEAD = "Leave `class_weight` out, and return `(x, y, sample_weight)` from `dataset_fn`."


def fit(
    model: keras.Model,
    dataset_fn: DatasetFunction,
    steps_per_epoch: int,
    epochs: int = 1,
    verbose: int | str = "auto",
    callbacks: Sequence[keras.callbacks.Callback] = (),
    validation_data: Any = None,
    initial_epoch: int = 0,
    validation_steps: int | None = None,
    class_weight: Mapping[int, float] | None = None,
) -> keras.callbacks.History:
    """Trains like `model.fit`, asynchronously on the trainers that `connect` was given.

    Each trainer takes batches from its own dataset, reads weights from the servers and sends
    gradients to them. It does not wait for the other trainers. Between reading the weights and
    updating them, about as many other steps as there are trainers may have updated them. So
    runs are not reproducible. If a trainer ends, the others take over its steps. Trainers that
    ended get steps again after all of them have been restarted at the same addresses.

    ```
    tflo.distribute.connect(servers, trainers=["10.0.0.4:4711", "10.0.0.5:4711"])
    model = ...  # built and compiled

    def dataset_fn(seed):
        return files().shuffle(100_000, seed=seed).repeat().batch(256)

    tflo.distribute.fit(model, dataset_fn, steps_per_epoch=10_000, epochs=3)
    ```

    An epoch has `steps_per_epoch` steps of all trainers together. `optimizer.iterations` is
    exact at the end of an epoch. A trainer gets `steps_per_execution` steps (of `compile`) at a
    time; a larger number reduces the communication. `loss` is the mean over all steps of the
    epoch. The metrics of `compile` cover all examples of these steps; they must be computed
    from sums over examples, as those of Keras and tf_largeout are. `val_...` are computed by
    `model.evaluate` in this process. Callbacks work, but `on_train_batch_...` is not called.

    Args:
        model: A compiled model that was built after `connect`.
        dataset_fn: Function that returns the endless, batched dataset of a trainer, with `(x,
            y)` or `(x, y, sample_weight)`. It runs on the machine of the trainer, which must be
            able to read the files of the dataset. Its argument is an int64 scalar, a seed that
            differs for each trainer.
        steps_per_epoch: Number of steps per epoch.
        epochs: Number of the last epoch.
        verbose: As in `model.fit`.
        callbacks: As in `model.fit`.
        validation_data: A dataset, or `(x, y)` or `(x, y, sample_weight)`.
        initial_epoch: Number of completed epochs.
        validation_steps: As in `model.fit`.
        class_weight: Weights of examples by class, such as `{0: 0.5, 7: 2.0}`; other classes
            have weight 1. Each trainer needs 12 bytes per entry. Examples must have one label.
            If they have several, return sample weights from `dataset_fn` instead.

    Returns:
        The `keras.callbacks.History`.

    Raises:
        RuntimeError: If `connect` was given no trainers.
        ValueError: If the model is not built or not compiled, an argument is not valid, a
            dataset ends, or `class_weight` is given for examples with several labels or with
            sample weights.
        tf.errors.OpError: If a server ends, or a step fails.
    """
    coordinator = _checked(model, dataset_fn)
    count = whole_number("steps_per_epoch", steps_per_epoch)
    epochs = whole_number("epochs", epochs)
    model.optimizer.build(model.trainable_variables)
    dataset_fn = weighted(dataset_fn, class_weight)

    def dataset() -> tf.data.Dataset:  # of a trainer
        # TensorFlow's own seeds would be the same on all trainers.
        return dataset_fn(tf.cast(1e6 * tf.timestamp(), tf.int64))

    data = coordinator.create_per_worker_dataset(dataset)
    _make_metrics(model, data.element_spec)
    steps, batches = _trainer_steps(model, coordinator.strategy), iter(data)
    history = keras.callbacks.History()
    calls = keras.callbacks.CallbackList(
        [*callbacks, history],
        add_progbar=verbose != 0,
        model=model,
        verbose=1 if verbose == "auto" else verbose,
        epochs=epochs,
        steps=count,
    )
    model.stop_training, logs = False, {}
    calls.on_train_begin()
    for epoch in range(initial_epoch, epochs):
        calls.on_epoch_begin(epoch)
        logs = _train(model, coordinator, steps, batches, count)
        if validation_data is not None:
            logs |= _evaluate(model, validation_data, validation_steps)
        calls.on_epoch_end(epoch, logs)
        if model.stop_training:
            break
    calls.on_train_end(logs)
    return history


def _checked(model: keras.Model, dataset_fn: DatasetFunction) -> Any:
    """Returns the coordinator of the trainers."""
    if not cluster.coordinators:
        raise RuntimeError(
            "There are no trainers. Call `tf_largeout.distribute.connect(addresses, "
            "trainers=[...])` before you create the model; with one trainer, use `model.fit`."
        )
    require_compiled(model, "`tf_largeout.distribute.fit`")
    if not callable(dataset_fn):
        raise ValueError(
            "`dataset_fn` must be a function of a seed that returns the dataset of a trainer. "
            f"Received: dataset_fn={dataset_fn!r}."
        )
    return cluster.coordinators[0]


def _train(
    model: keras.Model, coordinator: Any, steps: Any, batches: Any, count: int
) -> dict[str, float]:
    """Does `count` steps on the trainers; returns their mean loss, and metrics."""
    optimizer, at_once = model.optimizer, model.steps_per_execution
    first = int(optimizer.iterations)
    shares = [min(at_once, count - done) for done in range(0, count, at_once)]
    try:
        parts = [
            coordinator.schedule(steps, args=(batches, tf.constant(share))) for share in shares
        ]
        coordinator.join()
        loss, *added = map(sum, zip(*coordinator.fetch(parts), strict=True))
    except tf.errors.OutOfRangeError as error:
        raise ValueError(
            "The dataset of a trainer must be endless. Received: a `dataset_fn` whose dataset "
            "has ended. Use `.repeat()`."
        ) from error
    # The trainers do not count: concurrent updates of the counter would overwrite each other.
    optimizer.iterations.assign(first + count)
    for variable, value in zip(model.metrics_variables, added, strict=True):
        variable.assign(value)
    return {**model.get_metrics_result(), "loss": float(loss / count)}


def _evaluate(model: keras.Model, data: Any, steps: int | None) -> dict[str, float]:
    x, y, sample_weight = (*data, None)[:3] if isinstance(data, tuple) else (data, None, None)
    found = model.evaluate(
        x, y, sample_weight=sample_weight, steps=steps, verbose=0, return_dict=True
    )
    return {f"val_{name}": value for name, value in found.items()}


def _make_metrics(model: keras.Model, batch: Any) -> None:
    """Creates all variables of the metrics; Keras would create some in the first update."""

    @tf.function
    def update(batch: Any) -> None:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        model.compute_metrics(x, y, model(x, training=True), sample_weight)

    update.get_concrete_function(batch)  # traced, but not called


def _trainer_steps(model: keras.Model, strategy: tf.distribute.Strategy) -> Any:
    """Returns a function of batches and a number of steps; it runs on a trainer.

    It returns the sum of the losses, and the change of each variable of the metrics, which the
    trainers do not update: concurrent updates would overwrite each other.
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


def weighted(
    dataset_fn: DatasetFunction, class_weight: Mapping[int, float] | None
) -> DatasetFunction:
    """Returns a function that adds weights to the examples of `dataset_fn`, if not None."""
    if class_weight is None:
        return dataset_fn
    entries = _checked_weights(class_weight)
    if not len(entries[0]):
        return dataset_fn

    def with_weights(*batch: Any) -> tuple[Any, tf.Tensor, tf.Tensor]:
        x, y = _x_and_y(batch)
        classes, weights = map(tf.constant, entries)  # in the graph of each trainer
        ids = tf.cast(tf.round(tf.reshape(y, [-1])), tf.int64)
        # A binary search, whose time does not depend on the number of classes.
        positions = tf.minimum(tf.searchsorted(classes, ids), tf.size(classes) - 1)
        has_weight = tf.gather(classes, positions) == ids
        return x, y, tf.where(has_weight, tf.gather(weights, positions), 1)

    return lambda seed: dataset_fn(seed).map(with_weights)


def _checked_weights(class_weight: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns the classes, ascending, and their weights."""
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            "`class_weight` must be a dictionary of weights by class, such as {0: 0.5}. "
            f"Received: class_weight={class_weight!r}."
        )
    weights = {
        whole_number("key of class_weight", one, least=0): real_number(
            f"class_weight[{one}]", weight, least=-math.inf
        )
        for one, weight in class_weight.items()
    }
    classes = np.array(sorted(weights), np.int64)
    return classes, np.array([weights[one] for one in classes], keras.config.floatx())


def _x_and_y(batch: Any) -> tuple[Any, tf.Tensor]:
    """Unpacks a batch; raises a ValueError unless it has one label per example."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
    if sample_weight is not None:
        raise ValueError(
            "`class_weight` cannot be combined with sample weights. Received: a `dataset_fn` "
            f"whose batches have sample weights, and `class_weight`. {_INSTEAD}"
        )
    if not tf.is_tensor(y) or isinstance(y, tf.RaggedTensor | tf.SparseTensor):
        raise ValueError(f"`class_weight` needs a tensor of labels. Received: {y}. {_INSTEAD}")
    if not (y.shape.rank == 1 or (y.shape.rank == 2 and y.shape[1] == 1)):
        raise ValueError(
            "`class_weight` needs one label for each example: labels of the shape [batch] or "
            f"[batch, 1]. Received: labels of the shape {y.shape}. {_INSTEAD}"
        )
    return x, y


def require_compiled(model: keras.Model, before: str) -> None:
    """Raises a ValueError unless the model is built and compiled, as `before` needs."""
    if not model.built or getattr(model, "optimizer", None) is None:
        raise ValueError(
            f"A model must be built and compiled before {before}. Received: model "
            f"'{model.name}'. Give it a `keras.Input`, or call it on a batch, and compile it."
        )
