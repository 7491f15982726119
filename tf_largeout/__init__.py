"""Output layers with 100,000 to 100,000,000 classes for Keras, on TensorFlow or JAX.

Keras's backend decides. With JAX, the names are those of `tf_largeout.jax`. With TensorFlow,
the import loads the op library if it fits TensorFlow, which can then load exports that use its
ops. Other sub-packages are imported when they are first used. Keras finds their classes by
`keras_names`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tf_largeout import keras_backend as _keras_backend
from tf_largeout.version import __version__ as __version__

# Imported before Keras: its errors name the supported versions.
_ON_JAX = _keras_backend.name() == "jax"
importlib.import_module("tf_largeout.jax" if _ON_JAX else "tf_largeout.ops.library")

from tf_largeout.keras_names import register_classes as _register_classes  # noqa: E402

if TYPE_CHECKING:
    from tf_largeout import callbacks as callbacks
    from tf_largeout import datasets as datasets
    from tf_largeout import distribute as distribute
    from tf_largeout import layers as layers
    from tf_largeout import losses as losses
    from tf_largeout import metrics as metrics
    from tf_largeout import ops as ops
    from tf_largeout import optimizers as optimizers
    from tf_largeout import papers as papers
    from tf_largeout import retrieval as retrieval
    from tf_largeout import samplers as samplers
    from tf_largeout import serving as serving
    from tf_largeout.conversion import convert as convert
    from tf_largeout.conversion import restore as restore
    from tf_largeout.joined_models import join_models as join_models
    from tf_largeout.resizing import resize_classes as resize_classes

_SUB_PACKAGES = (
    "callbacks",
    "datasets",
    "distribute",
    "layers",
    "losses",
    "metrics",
    "ops",
    "optimizers",
    "papers",
    "retrieval",
    "samplers",
    "serving",
)
_MODULES_OF_FUNCTIONS = {
    "convert": "conversion",
    "restore": "conversion",
    "join_models": "joined_models",
    "resize_classes": "resizing",
}

_register_classes()


def __getattr__(name: str) -> Any:
    if name in _SUB_PACKAGES:
        return importlib.import_module(f"tf_largeout.{name}")
    if name in _MODULES_OF_FUNCTIONS:
        if _ON_JAX:
            raise _keras_backend.needs_tensorflow(name)
        module = importlib.import_module(f"tf_largeout.{_MODULES_OF_FUNCTIONS[name]}")
        return getattr(module, name)
    raise AttributeError(f"module 'tf_largeout' has no attribute '{name}'")


def __dir__() -> list[str]:
    return ["__version__", *_SUB_PACKAGES, *_MODULES_OF_FUNCTIONS]
