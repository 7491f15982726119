"""Names for `compile`, such as "sampled_softmax_loss", "perplexity" and "lazy_adam"."""

import inspect
import re
from types import ModuleType

import keras

from tf_largeout import losses, metrics, optimizers
from tf_largeout.keras_internals import compile_names


def register() -> None:
    """Registers losses, metrics and optimizers with Keras by their names in snake case.

    Classes with required arguments are left out. Names that Keras defines are not changed.
    """
    for module, table in (
        (losses, compile_names(keras.losses.get)),
        (metrics, compile_names(keras.metrics.get)),
        (optimizers, keras.saving.get_custom_objects()),
    ):
        for name, member in _classes_by_name(module).items():
            table.setdefault(name, member)


def _classes_by_name(module: ModuleType) -> dict[str, type]:
    """The serializable classes that `module` exports and that have no required arguments."""
    return {
        _snake_case(name): member
        for name, member in inspect.getmembers(module, inspect.isclass)
        if keras.saving.get_registered_name(member).startswith("tf_largeout>")
        and not _required_arguments(member)
    }


def _required_arguments(member: type) -> list[inspect.Parameter]:
    arguments = inspect.signature(member).parameters.values()
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one for one in arguments if one.default is one.empty and one.kind not in optional]


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
