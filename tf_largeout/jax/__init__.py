"""The main parts of tf_largeout for Keras's JAX backend, with the same names as on TensorFlow.

`tf_largeout` imports this package if Keras's backend is JAX. Its modules are then also
`tf_largeout.layers`, `tf_largeout.losses` and so on. Nothing here imports TensorFlow.
"""

import functools
import importlib
import importlib.abc
import pathlib
import sys
from typing import Any

from tf_largeout.keras_backend import needs_tensorflow
from tf_largeout.version import __version__

try:
    import jax as _jax  # noqa: F401
    import keras as _keras  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"tf_largeout {__version__} needs Keras 3 and jax, because Keras's backend is 'jax'. "
        f"They cannot be imported: {error}. Install them (pip install jax keras), or set "
        "KERAS_BACKEND=tensorflow in the environment and install TensorFlow."
    ) from error

_FOLDER = pathlib.Path(__file__).parent.parent
_MODULES = ("layers", "losses", "metrics", "optimizers", "retrieval", "samplers")
# Modules that both backends use, without TensorFlow, and this package.
_SHARED = (
    "arguments class_counts jax keras_backend keras_names layer_arguments optimizer_settings "
    "sampler_arguments sampling_tables version wrong_arguments"
).split()


class _Refusals(importlib.abc.MetaPathFinder):
    """Refuses to import modules of tf_largeout that need TensorFlow."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        package, _, name = fullname.partition(".")
        if package == "tf_largeout" and name and name.partition(".")[0] not in _SHARED:
            if (_FOLDER / name).is_dir() or (_FOLDER / f"{name}.py").is_file():
                raise needs_tensorflow(name)


def _missing(module: str, name: str) -> Any:
    """Raises the error of an attribute that a module of this package lacks."""
    on_tensorflow = (_FOLDER / module / "__init__.py").read_text("utf-8")  # with `__all__`
    if f'"{name}"' in on_tensorflow:
        raise needs_tensorflow(f"{module}.{name}")
    raise AttributeError(f"module 'tf_largeout.{module}' has no attribute {name!r}")


sys.meta_path.insert(0, _Refusals())
for _name in _MODULES:
    _module = importlib.import_module(f"tf_largeout.jax.{_name}")
    _module.__getattr__ = functools.partial(_missing, _name)  # type: ignore[method-assign]
    sys.modules[f"tf_largeout.{_name}"] = _module
