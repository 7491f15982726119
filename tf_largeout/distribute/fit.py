"""`fit`: trains a model asynchronously on several machines."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.arguments import whole_number
from tf_largeout.distribute import class_weights, cluster, trainer_steps
from tf_largeout.distribute.compiled_model import require_compiled

DatasetFunction = Callable[[tf.Tensor], tf.data.Dataset]


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
    exact at the end of an epoch. During an epoch it may be too low by some steps. (If a trainer
    ends during a step, the step is repeated.) A trainer gets `steps_per_execution` steps at a
    time; this is an argument of `compile`. A larger number reduces the communication.

    `loss` is the mean over all steps of the epoch. The metrics of `compile` cover all examples
    of these steps. This requires metrics that are computed from sums over examples, such as the
    Keras metrics and those of tf_largeout. The metrics of `validation_data`, `val_...`, are
    computed by `model.evaluate` in this process. The methods `on_train_begin`, `on_train_end`
    and `on_epoch_...` of callbacks are called, so `Backup`, `ModelCheckpoint` and
    `EarlyStopping` work. The methods `on_train_batch_...` are not called.

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
        validation_data: Data for `model.evaluate`: a dataset, or `(x, y)` or `(x, y,
            sample_weight)`.
        initial_epoch: Number of completed epochs.
        validation_steps: As in `model.fit`.
        class_weight: Weights of examples by class, such as `{0: 0.5, 7: 2.0}`; other classes
            have weight 1. The entry of a label is found by binary search, so the time does not
            depend on the number of classes. Each trainer needs 12 bytes per entry. Examples
            must have one label. If they have several, return sample weights from `dataset_fn`
            instead.

    Returns:
        The `keras.callbacks.History`.

    Raises:
        RuntimeError: If `connect` was given no trainers.
        ValueError: If the model is not built or not compiled, an argument is not valid, a
            dataset ends, or `class_weight` is given for examples with several labels or with
            sample weights.
        tf.errors.OpError: If a server ends, or a step fails.
    """
    coordinator = _coordinator()
    _check(model, dataset_fn)
    count = whole_number("steps_per_epoch", steps_per_epoch)
    epochs = whole_number("epochs", epochs)
    model.optimizer.build(model.trainable_variables)
    data = trainer_steps.data(coordinator, class_weights.weighted(dataset_fn, class_weight))
    trainer_steps.make_metrics(model, data.element_spec)
    steps, batches = trainer_steps.steps(model, coordinator.strategy), iter(data)

    def one_epoch() -> dict[str, float]:
        logs = _train(model, coordinator, steps, batches, count)
        if validation_data is not None:
            logs |= _evaluate(model, validation_data, validation_steps)
        return logs

    history = keras.callbacks.History()
    calls = keras.callbacks.CallbackList(
        [*callbacks, history],
        add_progbar=verbose != 0,
        model=model,
        verbose=1 if verbose == "auto" else verbose,
        epochs=epochs,
        steps=count,
    )
    _each_epoch(one_epoch, range(initial_epoch, epochs), model, calls)
    return history


def _each_epoch(
    function: Callable[[], dict[str, float]],
    epochs: range,
    model: keras.Model,
    calls: keras.callbacks.CallbackList,
) -> None:
    """Calls `function`, which returns logs, for each epoch, until a callback stops it."""
    model.stop_training, logs = False, {}
    calls.on_train_begin()
    for epoch in epochs:
        calls.on_epoch_begin(epoch)
        logs = function()
        calls.on_epoch_end(epoch, logs)
        if model.stop_training:
            break
    calls.on_train_end(logs)


def _coordinator() -> Any:
    found = cluster.coordinator()
    if found is None:
        raise RuntimeError(
            "There are no trainers. Call `tf_largeout.distribute.connect(addresses, "
            "trainers=[...])` before you create the model; with one trainer, use `model.fit`."
        )
    return found


def _check(model: keras.Model, dataset_fn: DatasetFunction) -> None:
    require_compiled(model, "`tf_largeout.distribute.fit`")
    if not callable(dataset_fn):
        raise ValueError(
            "`dataset_fn` must be a function of a seed that returns the dataset of a trainer. "
            f"Received: dataset_fn={dataset_fn!r}."
        )


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
    x, y, sample_weight = (data, None, None)
    if isinstance(data, tuple):
        x, y, sample_weight = (*data, None)[:3]
    found = model.evaluate(
        x, y, sample_weight=sample_weight, steps=steps, verbose=0, return_dict=True
    )
    return {f"val_{name}": value for name, value in found.items()}
