"""The backend of Keras, found without importing Keras."""

import json
import os
import pathlib
import sys
from typing import Any

USE_JAX = (
    "Or use Keras's JAX backend: set KERAS_BACKEND=jax in the environment before Keras is "
    "imported"
)


def name() -> str:
    """Returns the backend that Keras uses, or will use when it is imported, such as "jax".

    As in Keras, the environment variable KERAS_BACKEND decides, then keras.json in the folder
    KERAS_HOME or ~/.keras. The default is "tensorflow".
    """
    keras: Any = sys.modules.get("keras")
    if hasattr(keras, "config"):
        return str(keras.config.backend())
    if chosen := os.environ.get("KERAS_BACKEND"):
        return chosen
    try:
        config = json.loads((_folder() / "keras.json").read_text("utf-8"))
        return str(config.get("backend", "tensorflow"))
    except (OSError, ValueError):
        return "tensorflow"


def _folder() -> pathlib.Path:
    if folder := os.environ.get("KERAS_HOME"):
        return pathlib.Path(folder).expanduser()
    home = pathlib.Path("~").expanduser()
    return (home if os.access(home, os.W_OK) else pathlib.Path("/tmp")) / ".keras"
