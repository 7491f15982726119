"""Warnings and errors about what a model is compiled with: optimizer, loss and metrics."""

import inspect
import logging
import weakref
from typing import Any

import keras

from tf_largeout import keras_internals
from tf_largeout.tags.compiled_parts import outputs_of, part_of

_ROW_SPARSE = {"SGD": "LazySGD", "Adagrad": "LazyAdagrad"}  # for all others: LazyAdam
_UNLISTED_METRICS = ("accuracy", "acc", "crossentropy", "ce")  # depend on the shapes of labels
_with_dense_optimizer: weakref.WeakSet[Any] = weakref.WeakSet()
_with_other_loss: weakref.WeakSet[Any] = weakref.WeakSet()
_with_keras_metrics: weakref.WeakSet[Any] = weakref.WeakSet()


def warn_of_dense_optimizer(layer: Any) -> None:
    """Warns, once per layer, if a Keras optimizer updates all rows, which the loss does not.

    It must be called in a training step. It does not warn in a custom loop without a compiled
    model, or about an optimizer that is not part of Keras.

    Args:
        layer: The output layer, which is trained by a loss that reads only some class rows.
    """
    model = keras_internals.training_model()
    if model is None or layer in _with_dense_optimizer:
        return
    optimizer = _optimizer_of(_tables_of(layer), model.optimizer)
    if optimizer is None or not _updates_all_rows(optimizer):
        return
    _with_dense_optimizer.add(layer)
    name = type(optimizer).__name__
    logging.getLogger("tf_largeout").warning(
        "The optimizer keras.optimizers.%s reads and writes all %s x %d numbers of the class "
        "embeddings of layer '%s' in every step, and as many numbers of each slot. But the "
        "loss changes only the rows of the classes that it scores. Use "
        "tf_largeout.optimizers.%s, which reads and writes only these rows.",
        name,
        f"{layer.num_classes:,}",
        layer.class_matrix.dim,
        layer.name,
        _ROW_SPARSE.get(name, "LazyAdam"),
    )


def require_row_sparse_optimizer(layer: Any) -> None:
    """Raises a ValueError if a Keras optimizer trains rows in bfloat16.

    A Keras optimizer would round each row to the nearest number, and lose small updates. This
    function does not detect it in a custom loop without a compiled model.

    Args:
        layer: The output layer, called in a step.
    """
    model = keras_internals.training_model()
    if model is None:
        return
    tables = [one for one in layer.trainable_variables if len(one.shape) == 2]
    optimizer = _optimizer_of(tables, model.optimizer)
    if optimizer is None or not _is_of_keras(type(optimizer)):
        return
    if hasattr(optimizer, "optimizers"):  # a MultiOptimizer that is not built yet
        return
    name = type(optimizer).__name__
    raise ValueError(
        f"Layer '{layer.name}' has class rows in bfloat16, which need an optimizer that "
        f"rounds at random. Received: keras.optimizers.{name}, which would lose small updates. "
        f"Use tf_largeout.optimizers.{_ROW_SPARSE.get(name, 'LazyAdam')} or RowwiseAdagrad, or "
        "use float32 rows."
    )


def warn_of_probability_loss(layer: Any) -> None:
    """Warns, once per layer, if a Keras loss treats the logits of a layer as probabilities.

    It must be called in a step of a compiled model. It does not warn if the outputs of the
    model are not known to be those of the layer, as in a subclassed model.

    Args:
        layer: The output layer.
    """
    model = keras_internals.model_of_step()
    if model is None or layer in _with_other_loss:
        return
    for place in outputs_of(layer, model):
        loss = _keras_loss(part_of(getattr(model, "loss", None), model, place))
        if _takes_probabilities(loss):
            _with_other_loss.add(layer)
            logging.getLogger("tf_largeout").warning(
                "The Keras loss %s treats the outputs of layer '%s' as probabilities "
                "(from_logits=False), but they are logits, so the loss is wrong. Use a loss of "
                "tf_largeout.losses, such as SoftmaxLoss(), or pass from_logits=True: "
                "keras.losses.SparseCategoricalCrossentropy(from_logits=True).",
                getattr(loss, "__name__", type(loss).__name__),
                layer.name,
            )
            return


def warn_of_keras_metrics(layer: Any) -> None:
    """Warns, once per layer, if Keras metrics read the logits of a layer.

    They need O(num_classes) time per step, and are wrong for several labels and for padding.
    Like `warn_of_probability_loss`, it must be called in a step of a compiled model, and does
    not warn if the outputs of the model are not known to be those of the layer.

    Args:
        layer: The output layer.
    """
    model = keras_internals.model_of_step()
    if model is None or layer in _with_keras_metrics:
        return
    for place in outputs_of(layer, model):
        names = [
            _name_of(one)
            for metrics in keras_internals.compiled_metrics(model)
            for one in keras.tree.flatten(part_of(metrics, model, place))
            if _is_keras_metric(one)
        ]
        if names:
            _with_keras_metrics.add(layer)
            logging.getLogger("tf_largeout").warning(
                "The Keras metrics %s read the logits of all %s classes of layer '%s' in "
                "every step. They are wrong, without an error, for examples with several "
                "labels and for labels of -1. Use metrics of tf_largeout.metrics: with one "
                "label per example, PrecisionAtK(1) is the accuracy, and RecallAtK(5) is the "
                "top-5 accuracy.",
                ", ".join(names),
                f"{layer.num_classes:,}",
                layer.name,
            )
            return


def _tables_of(layer: Any) -> list[Any]:
    """Returns the trained variables that have a row per class."""
    tower = getattr(layer, "tower", None)
    if tower is not None:
        return [] if tower.free_rows is None else [tower.free_rows]
    return [one for one in layer.trainable_variables if len(one.shape) == 2]


def _optimizer_of(variables: list[Any], optimizer: Any) -> Any:
    """Returns the optimizer that updates `variables`; None if there is none."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not variables or optimizer is None:
        return None
    for inner in getattr(optimizer, "optimizers", []):  # of a MultiOptimizer
        if any(one is variables[0] for one in keras_internals.trainable_variables(inner)):
            return inner
    return optimizer


def _updates_all_rows(optimizer: Any) -> bool:
    """Returns whether a Keras optimizer updates all rows, as all do except plain SGD."""
    if not _is_of_keras(type(optimizer)) or hasattr(optimizer, "optimizers"):
        return False
    is_plain = not optimizer.weight_decay and not optimizer.use_ema
    return not (type(optimizer) is keras.optimizers.SGD and is_plain and not optimizer.momentum)


def _is_keras_metric(metric: Any) -> bool:
    if isinstance(metric, str):
        known = keras_internals.compile_names(keras.metrics.get).get(metric)
        return metric in _UNLISTED_METRICS if known is None else _is_of_keras(known)
    if isinstance(metric, keras.metrics.Metric):
        return _is_of_keras(type(metric))
    return inspect.isfunction(metric) and _is_of_keras(metric)


def _name_of(metric: Any) -> str:
    if isinstance(metric, str):
        return metric
    return str(getattr(metric, "name", None) or metric.__name__)


def _keras_loss(loss: Any) -> Any:
    """Returns the loss, function or class for a name, and other losses as they are."""
    if isinstance(loss, str):
        loss = keras_internals.compile_names(keras.losses.get).get(loss)
    return loss() if isinstance(loss, type) and _is_of_keras(loss) else loss


def _takes_probabilities(loss: Any) -> bool:
    if isinstance(loss, keras.losses.Loss) and _is_of_keras(type(loss)):
        return loss.get_config().get("from_logits") is False
    if not inspect.isfunction(loss) or not _is_of_keras(loss):
        return False
    argument = inspect.signature(loss).parameters.get("from_logits")
    return argument is not None and argument.default is False


def _is_of_keras(member: Any) -> bool:
    return str(member.__module__).startswith("keras.")
