"""`fit`: trains a model by several processes, none of which waits for the others."""

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
    """Trains like `model.fit`, by the trainers that `connect` was given.

    Each takes batches from a data set of its own, reads the weights where they are and sends
    its gradients there; the next step of another may come in between. So a step's gradient is
    of weights that up to as many steps as there are trainers have changed since, and no run is
    like another. A trainer that ends costs nothing but its speed: others take its steps. Those
    that ended take part again when all of them were started again, at their addresses.

    ```
    tflo.distribute.connect(servers, trainers=["10.0.0.4:4711", "10.0.0.5:4711"])
    model = ...  # built and compiled

    def dataset_fn(seed):
        return files().shuffle(100_000, seed=seed).repeat().batch(256)

    tflo.distribute.fit(model, dataset_fn, steps_per_epoch=10_000, epochs=3)
    ```

    An epoch is `steps_per_epoch` steps of all trainers together; `optimizer.iterations` is
    exact at its end, and may be some steps behind within it. (A step is done a second time if
    its trainer ended in it.) A trainer gets as many steps at a time as the
    `steps_per_execution` of `compile` says: more save the way to it and back.

    `loss` is the mean over all steps of the epoch, and the metrics of `compile` are those of
    all their examples, if they are made of sums over examples, as those of Keras and of
    tf_largeout are. Those of `validation_data`, as `val_...`, come from `model.evaluate` in
    this process. Of callbacks `on_train_...` and `on_epoch_...` are called, with `Backup`,
    `ModelCheckpoint` or `EarlyStopping` among them, `on_train_batch_...` are not.

    Args:
        model: Compiled, and built after `connect`.
        dataset_fn: Makes the endless, batched data set of a trainer, `(x, y)` or `(x, y,
            sample_weight)`, on its machine, of an int64 scalar that is another one in each:
            for the order of its examples. What it reads must be there.
        steps_per_epoch: Number of steps of an epoch.
        epochs: Number of the last epoch.
        verbose: As in `model.fit`.
        callbacks: As in `model.fit`.
        validation_data: What `model.evaluate` takes: a data set, or `(x, y)` or `(x, y,
            sample_weight)`.
        initial_epoch: How many epochs are done.
        validation_steps: As in `model.fit`.
        class_weight: Weights by class, of examples whose only label they are, such as
            `{0: 0.5, 7: 2.0}`; all other classes have 1. Trainers look labels up among the
            entries, in a time that grows with the logarithm of their number and not with that
            of the classes; each holds 12 bytes for an entry. With several labels a row let
            `dataset_fn` give sample weights.

    Returns:
        The `keras.callbacks.History`.

    Raises:
        RuntimeError: If `connect` was given no trainers.
        ValueError: If the model is not built or not compiled, an argument is not as above, a
            data set ends, or `class_weight` is given for several labels a row or besides
            sample weights.
        tf.errors.OpError: If a server ends, or a step has an error.
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
    """Calls `function`, which returns logs, for each epoch, until a callback says to stop."""
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
            "trainers=[...])` before the model is made; with one trainer, take `model.fit`."
        )
    return found


def _check(model: keras.Model, dataset_fn: DatasetFunction) -> None:
    require_compiled(model, "`tf_largeout.distribute.fit`")
    if not callable(dataset_fn):
        raise ValueError(
            "`dataset_fn` must be a function of a seed that makes the data set of a trainer. "
            f"Received: dataset_fn={dataset_fn!r}."
        )


def _train(
    model: keras.Model, coordinator: Any, steps: Any, batches: Any, count: int
) -> dict[str, float]:
    """Does `count` steps on whatever trainers there are; their mean loss, and metrics."""
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
            "The data set of a trainer has ended. Let `dataset_fn` return one without an end: "
            "`.repeat()` makes it so."
        ) from error
    # Trainers that count at the same time overwrite what the others counted.
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
