"""Warnings and errors about what a model is compiled with: optimizer, loss and metrics."""

import inspect
import logging
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import keras

from tf_largeout import keras_internals
from tf_largeout.classes.class_scorer import ClassScorer

_ROW_SPARSE = {"SGD": "LazySGD", "Adagrad": "LazyAdagrad"}  # for all others: LazyAdam
_UNLISTED_METRICS = ("accuracy", "acc", "crossentropy", "ce")  # depend on the shapes of labels
_with_dense_optimizer: weakref.WeakSet[Any] = weakref.WeakSet()
_with_other_loss: weakref.WeakSet[Any] = weakref.WeakSet()
_with_keras_metrics: weakref.WeakSet[Any] = weakref.WeakSet()


class OutputLayer(Protocol):
    """What the checks need to know of a layer, a `ClassOutput`."""

    name: str
    num_classes: int
    class_matrix: ClassScorer
    sampler: Any

    def row_variables(self) -> list[keras.Variable]: ...


def check_compiled(layer: OutputLayer, model: keras.Model, training: bool | None) -> None:
    """Warns, once per layer, about parts of a compiled model that do not fit its output layer.

    A Keras optimizer that trains rows in bfloat16 raises a ValueError.
    """
    losses, names, loss = [], [], getattr(model, "loss", None)
    metrics = keras_internals.compiled_metrics(model)
    places = outputs_of(layer, model)
    for place in places:
        losses.append(part_of(loss, model, place))
        if _is_of_keras(losses[-1]):
            _warn_of_probabilities(layer, losses[-1])
        for part in metrics:
            for one in keras.tree.flatten(part_of(part, model, place)):
                if _is_of_keras(one):
                    name = one if isinstance(one, str) else getattr(one, "name", None)
                    names.append(name or one.__name__)
    if names and layer not in _with_keras_metrics:
        _warn_of_keras_metrics(layer, names)
    if training and _is_of_keras(model.optimizer):
        _check_optimizer(layer, model, losses if places else keras.tree.flatten(loss))


def _warn_of_probabilities(layer: OutputLayer, loss: Callable[..., Any] | str) -> None:
    """Warns if a Keras loss treats the logits of a layer as probabilities."""
    if isinstance(loss, str):
        loss = keras_internals.compile_names(keras.losses.get)[loss]
    loss = loss() if isinstance(loss, type) else loss
    if isinstance(loss, keras.losses.Loss):
        takes_logits = loss.get_config().get("from_logits", True)
    else:
        argument = inspect.signature(loss).parameters.get("from_logits")
        takes_logits = argument is None or argument.default
    if takes_logits or layer in _with_other_loss:
        return
    _with_other_loss.add(layer)
    logging.getLogger("tf_largeout").warning(
        "The Keras loss %s treats the outputs of layer '%s' as probabilities "
        "(from_logits=False), but they are logits, so the loss is wrong. Use a loss of "
        "tf_largeout.losses, such as SoftmaxLoss(), or pass from_logits=True: "
        "keras.losses.SparseCategoricalCrossentropy(from_logits=True).",
        getattr(loss, "__name__", type(loss).__name__),
        layer.name,
    )


def _warn_of_keras_metrics(layer: OutputLayer, names: list[str]) -> None:
    """Warns if Keras metrics read the logits of a layer, in O(num_classes) time per step."""
    _with_keras_metrics.add(layer)
    logging.getLogger("tf_largeout").warning(
        "The Keras metrics %s read the logits of all %s classes of layer '%s' in every step. "
        "They are wrong, without an error, for examples with several labels and for labels of "
        "-1. Use metrics of tf_largeout.metrics: with one label per example, PrecisionAtK(1) "
        "is the accuracy, and RecallAtK(5) is the top-5 accuracy.",
        ", ".join(names),
        f"{layer.num_classes:,}",
        layer.name,
    )


def _check_optimizer(layer: OutputLayer, model: keras.Model, losses: list[Any]) -> None:
    """Warns if a Keras optimizer updates all rows; an error if they are in bfloat16."""
    optimizer = _optimizer_of(layer.row_variables(), model.optimizer)
    if optimizer is None or not _is_of_keras(optimizer):
        return
    if hasattr(optimizer, "optimizers"):  # a MultiOptimizer that is not built yet
        return
    name = type(optimizer).__name__
    lazy = _ROW_SPARSE.get(name, "LazyAdam")
    if layer.class_matrix.is_rounded:
        raise ValueError(
            f"Layer '{layer.name}' has class rows in bfloat16, which need an optimizer that "
            f"rounds at random. Received: keras.optimizers.{name}, which would lose small "
            f"updates. Use tf_largeout.optimizers.{lazy} or RowwiseAdagrad, or use float32 "
            "rows."
        )
    is_plain = not optimizer.weight_decay and not optimizer.use_ema
    if type(optimizer) is keras.optimizers.SGD and is_plain and not optimizer.momentum:
        return  # the only one that reads no other rows
    changes_some = any(_changes_some_rows(one, layer) for one in losses)
    if layer in _with_dense_optimizer or not changes_some:
        return
    _with_dense_optimizer.add(layer)
    logging.getLogger("tf_largeout").warning(
        "The optimizer keras.optimizers.%s reads and writes all %s x %d numbers of the class "
        "embeddings of layer '%s' in every step, and as many numbers of each slot. But the "
        "loss changes only the rows of the classes that it scores. Use "
        "tf_largeout.optimizers.%s, which reads and writes only these rows.",
        name,
        f"{layer.num_classes:,}",
        layer.class_matrix.dim,
        layer.name,
        lazy,
    )


def _changes_some_rows(loss: Callable[..., Any] | str | None, layer: OutputLayer) -> bool:
    """Returns whether the gradient has only rows of some classes; a loss of None is unknown."""
    if isinstance(loss, str):
        loss = keras.losses.get(loss)
    if loss is None or getattr(loss, "samples", False):
        return layer.sampler is not None
    return getattr(loss, "changes_some_rows", False)


def _optimizer_of(variables: list[Any], optimizer: Any) -> Any:
    """Returns the optimizer that updates `variables`; None if there is none."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not variables or optimizer is None:
        return None
    for inner in getattr(optimizer, "optimizers", []):  # of a MultiOptimizer
        if any(one is variables[0] for one in keras_internals.trainable_variables(inner)):
            return inner
    return optimizer


def _kind_of(part: Any) -> Any:
    """Returns a function, or the class of a loss, metric, optimizer or known name, or None."""
    if not isinstance(part, str):
        return part if hasattr(part, "__name__") else type(part)
    tables = map(keras_internals.compile_names, (keras.losses.get, keras.metrics.get))
    return next((table[part] for table in tables if part in table), None)


def _is_of_keras(part: Any) -> bool:
    """Returns whether Keras defines a loss, metric or optimizer, or the class of a name."""
    kind = _kind_of(part)
    return part in _UNLISTED_METRICS if kind is None else kind.__module__.startswith("keras.")


def are_unread(layer: OutputLayer, model: keras.Model | None) -> bool:
    """Returns whether nothing reads the logits of an output layer in the current step of `fit`.

    This is known if the layer is an output of the model that is trained, no other layer takes
    the output, all its losses and metrics are from tf_largeout, so they use its tag, and the
    model class does not override `train_step`. In any other case, the answer is False.
    """
    if model is None or not keras_internals.has_standard_step(model):
        return False
    places = outputs_of(layer, model)
    if len(places) != 1 or keras_internals.is_input_of_a_layer(layer):
        return False
    parts = [getattr(model, "loss", None), *keras_internals.compiled_metrics(model)]
    readers = [
        one for part in parts for one in keras.tree.flatten(part_of(part, model, *places))
    ]
    kinds = [_kind_of(one) for one in readers if one is not None]
    return all(
        any(base.__module__.startswith("tf_largeout.") for base in getattr(kind, "__mro__", ()))
        for kind in kinds
    )


def outputs_of(layer: OutputLayer, model: keras.Model) -> list[int]:
    """Returns the positions of those outputs of `model` that are direct outputs of `layer`."""
    places = []
    for place, output in enumerate(getattr(model, "outputs", None) or []):
        if keras_internals.output_layer(output) is layer:
            places.append(place)
    return places


def part_of(value: Any, model: keras.Model, place: int) -> Any:
    """Returns the part of `value`, an argument of `compile`, for the output at `place`."""
    if isinstance(value, dict):
        return value.get(model.output_names[place])
    if isinstance(value, list | tuple) and len(model.outputs) > 1:
        return value[place] if place < len(value) else None
    return value
