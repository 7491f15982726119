"""Names for `compile`, such as "sampled_softmax_loss", "ndcg_at_10" and "lazy_adam"."""

import inspect
import re
from types import ModuleType

import keras

from tf_largeout import losses, metrics, optimizers
from tf_largeout.keras_internals import compile_names
from tf_largeout.metrics.rank_metrics import RankMetric

RANKS = (*range(1, 101), 200, 500, 1000)  # the k of metrics by name


def register() -> None:
    """Registers losses, metrics and optimizers with Keras by their names in snake case.

    Classes with required arguments are left out, except metrics that need only k: they have one
    name for each k in `RANKS`, such as "precision_at_5". Names that Keras defines are not
    changed.
    """
    for module, table in (
        (losses, compile_names(keras.losses.get)),
        (metrics, compile_names(keras.metrics.get)),
        (optimizers, keras.saving.get_custom_objects()),
    ):
        for name, member in _classes_by_name(module).items():
            table.setdefault(name, member)
    table = compile_names(keras.metrics.get)
    for name, member in _metrics_at_k().items():
        table.setdefault(name, member)


def _classes_by_name(module: ModuleType) -> dict[str, type]:
    """Returns the serializable classes of `module` that have no required arguments, by name."""
    return {
        _snake_case(name): member
        for name, member in _serializable_classes(module)
        if not _required_arguments(member)
    }


def _metrics_at_k() -> dict[str, type]:
    """Returns, for each name and k of a rank metric, a class that creates this metric."""
    return {
        f"{member.kind}_at_{k}": _maker(member, k)
        for _, member in _serializable_classes(metrics)
        if issubclass(member, RankMetric)
        and {one.name for one in _required_arguments(member)} <= {"k"}
        for k in RANKS
    }


def _maker(member: type[RankMetric], k: int) -> type:
    # Keras calls a class to create a metric, but would use a function as the metric itself.
    return type(member.__name__, (), {"__new__": lambda cls: member(k)})


def _serializable_classes(module: ModuleType) -> list[tuple[str, type]]:
    return [
        (name, member)
        for name, member in inspect.getmembers(module, inspect.isclass)
        if keras.saving.get_registered_name(member).startswith("tf_largeout>")
    ]


def _required_arguments(member: type) -> list[inspect.Parameter]:
    arguments = inspect.signature(member).parameters.values()
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one for one in arguments if one.default is one.empty and one.kind not in optional]


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
