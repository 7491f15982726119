"""Loads the C++ op library. Only `tf_largeout.ops` accesses it."""

import contextlib
import importlib
import logging
import mmap
import os
import pathlib
import re
import types
from collections.abc import Iterator
from typing import Any

from tf_largeout.ops import gpu_cards
from tf_largeout.version import (
    TENSORFLOW_WINDOW,
    __version__,
    accepts_tensorflow,
    library_name,
    minor_of,
)

try:
    import tensorflow as tf
except ImportError as error:
    raise ImportError(
        f"tf_largeout {__version__} needs TensorFlow {TENSORFLOW_WINDOW}, which cannot be "
        f"imported ({error}). Install it: "
        f'pip install "tensorflow-cpu{TENSORFLOW_WINDOW}", or for GPUs '
        f'"tensorflow[and-cuda]{TENSORFLOW_WINDOW}"'
    ) from error

_FOLDER = pathlib.Path(__file__).parent


def check_keras() -> None:
    """Raises an ImportError unless Keras can be imported and computes with TensorFlow."""
    remedy = (
        "Set KERAS_BACKEND=tensorflow in the environment before Keras is imported, or change "
        "the backend in ~/.keras/keras.json."
    )
    needed = f"tf_largeout {__version__} needs Keras 3 with its TensorFlow backend"
    try:
        import keras
    except ImportError as error:
        raise ImportError(f"{needed}. Keras cannot be imported: {error}. {remedy}") from error
    if keras.config.backend() != "tensorflow":
        found = keras.config.backend()
        raise ImportError(f"{needed}. Its backend is '{found}'. {remedy}")


def check_tensorflow(version: str) -> None:
    """Raises an ImportError unless tf_largeout supports TensorFlow `version`."""
    if not accepts_tensorflow(version):
        raise ImportError(
            f"Installed: TensorFlow {version}. Supported by tf_largeout {__version__}: "
            f"TensorFlow {TENSORFLOW_WINDOW}. {_remedies()}"
        )


def library_for(version: str, folder: pathlib.Path = _FOLDER) -> pathlib.Path:
    """Returns the path of the package's op library for TensorFlow `version`.

    An installation from source has one library, `_largeout_ops.so`. A wheel has one for each
    minor version of TensorFlow, such as `_largeout_ops_2_18.so`. The file may be missing.
    """
    in_wheel = folder / library_name(version)
    return in_wheel if in_wheel.exists() else folder / library_name()


def check_library(path: pathlib.Path, version: str) -> None:
    """Raises an ImportError unless the library exists and is for TensorFlow `version`."""
    if not path.exists():
        others = sorted(one.name for one in path.parent.glob("_largeout_ops*.so"))
        raise ImportError(
            f"tf_largeout {__version__} has no op library for the installed TensorFlow "
            f"{version}: {path} is missing. Op libraries in that folder: "
            f"{', '.join(others) or 'none'}. {_remedies()}"
        )
    built_for = compiled_for(path)
    if minor_of(built_for) != minor_of(version):
        raise ImportError(
            f"The op library {path} was compiled for TensorFlow {built_for}. Installed: "
            f"TensorFlow {version}. A library works with the minor version that it was "
            f"compiled for. {_remedies()}"
        )


def compiled_for(path: pathlib.Path) -> str:
    """Returns the TensorFlow version that an op library was compiled for, or "unknown"."""
    found = _text_in(path, rb"largeout built for tensorflow [\w.+-]+")
    return found.decode().split()[-1] if found else "unknown"


def has_gpu_kernels(path: pathlib.Path) -> bool:
    """Returns whether an op library was compiled with GPU kernels."""
    return _text_in(path, gpu_cards.RECORD) is not None


def check_gpus(path: pathlib.Path) -> str | None:
    """Returns why the GPU kernels of an op library cannot be used on this machine, or None.

    None also means that there are no kernels or no GPUs. If the GPUs or the driver of this
    machine cannot run the kernels, a warning is logged.
    """
    record = _text_in(path, gpu_cards.RECORD) if path.exists() else None
    if record is None:
        return None
    if os.environ.get("LARGEOUT_GPU") == "0":
        return "LARGEOUT_GPU=0 in the environment turns the GPU kernels of tf_largeout off"
    if not tf.test.is_built_with_cuda():
        return None
    reason = gpu_cards.why_unusable(record, gpu_cards.find_machine())
    if reason:
        logging.getLogger("tf_largeout").warning(
            "The layers of tf_largeout and their slots will be on the CPU. %s. LARGEOUT_GPU=0 "
            "in the environment has the same effect, without this warning.",
            reason,
        )
    return reason


def _text_in(path: pathlib.Path, pattern: bytes) -> bytes | None:
    """Returns the first match of `pattern` in a file, or None."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = re.search(pattern, content)
            return found.group() if found else None


def load(path: pathlib.Path, use_gpus: bool = True) -> types.ModuleType:
    """Returns the module of op functions of a library; without `use_gpus` all run on the CPU.

    A library for another TensorFlow, or one that does not load, is an ImportError.
    """
    check_tensorflow(tf.__version__)
    check_library(path, tf.__version__)
    try:
        with contextlib.nullcontext() if use_gpus else _gpu_kernels_off():
            return tf.load_op_library(str(path))
    except tf.errors.OpError as error:
        raise ImportError(
            f"The op library {path} does not load: {error.message}. Installed: TensorFlow "
            f"{tf.__version__}. {_remedies()}"
        ) from error


@contextlib.contextmanager
def _gpu_kernels_off() -> Iterator[None]:
    """Within this context, an op library that is loaded does not register its GPU kernels."""
    before = os.environ.get("LARGEOUT_GPU")
    os.environ["LARGEOUT_GPU"] = "0"
    try:
        yield
    finally:
        del os.environ["LARGEOUT_GPU"]
        if before is not None:
            os.environ["LARGEOUT_GPU"] = before


def _remedies() -> str:
    return (
        "Do one of the following: (1) install a supported TensorFlow, "
        f'pip install "tensorflow-cpu{TENSORFLOW_WINDOW}" or '
        f'"tensorflow[and-cuda]{TENSORFLOW_WINDOW}"; (2) compile the ops for the installed '
        "TensorFlow, in the source folder of tf_largeout: pip install --force-reinstall "
        "--no-deps . (with -e if it is an editable install); (3) install the release of "
        "tf_largeout for your TensorFlow."
    )


# LARGEOUT_OPS_LIBRARY selects another build of the library, such as one with sanitizers.
LOADED = pathlib.Path(os.environ.get("LARGEOUT_OPS_LIBRARY") or library_for(tf.__version__))
GPUS_UNUSABLE = check_gpus(LOADED)  # The reason, or None.
gen_ops: Any  # The functions of the ops, such as `largeout_row_dots`.
if os.environ.get("LARGEOUT_OPS") == "stock":
    gen_ops = importlib.import_module("tf_largeout.ops.stock")
else:
    gen_ops = load(LOADED, use_gpus=not GPUS_UNUSABLE)
check_keras()
HAS_GPU_KERNELS = has_gpu_kernels(LOADED) and not GPUS_UNUSABLE
