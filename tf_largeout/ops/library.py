"""Chooses the ops of this process: the C++ op library, or stock TensorFlow operations.

Only `tf_largeout.ops` imports this module. If LARGEOUT_OPS is in the environment, it makes the
choice. Otherwise, with LARGEOUT_GPU=1 and a GPU, the ops are stock operations, except those for
which the library has GPU kernels. Otherwise they are those of a library that fits the installed
TensorFlow or, if there is none, stock operations.
"""

import contextlib
import importlib.util
import logging
import mmap
import os
import pathlib
import re
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from tf_largeout import keras_backend
from tf_largeout.ops import gpu_cards
from tf_largeout.version import (
    CPU_PACKAGE,
    LIBRARY_WINDOW,
    TENSORFLOW_VERSIONS,
    __version__,
    accepts_tensorflow,
    library_name,
    minor_of,
)

_INSTALL = (
    f'pip install "{CPU_PACKAGE}{TENSORFLOW_VERSIONS}", or for GPUs '
    f'"tensorflow[and-cuda]{TENSORFLOW_VERSIONS}"'
)
try:
    import tensorflow as tf
except ImportError as error:
    other = "" if importlib.util.find_spec("jax") is None else f". {keras_backend.USE_JAX}"
    raise ImportError(
        f"tf_largeout {__version__} needs TensorFlow {TENSORFLOW_VERSIONS}, which cannot be "
        f"imported ({error}). Install it: {_INSTALL}{other}"
    ) from error

_FOLDER = pathlib.Path(__file__).parent
_LOG = logging.getLogger("tf_largeout")
# On GPUs, the ops with these beginnings come from a library with GPU kernels.
_WITH_GPU_KERNELS = (
    "largeout_factored_output_",
    "largeout_hash_functions",
    "largeout_kernel_tree_",
    "largeout_lsh_",
    "largeout_union_of_lists",
)


class NoLibraryError(ImportError):
    """The op library does not fit the installed TensorFlow; `reason` has no remedies."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}. {_REMEDIES}")
        self.reason = reason


class Ops(NamedTuple):
    """The ops of this process, and why they were chosen."""

    kind: str  # "native" or "stock"
    functions: Any  # `largeout_row_dots` and others
    reason: str
    is_fallback: bool = False
    has_gpu_kernels: bool = False  # whether some are of the library, with GPU kernels


def check_keras() -> None:
    """Raises an ImportError unless Keras can be imported and computes with TensorFlow.

    With JAX, this module is not imported.
    """
    remedy = (
        "Set KERAS_BACKEND=tensorflow or KERAS_BACKEND=jax in the environment before Keras is "
        "imported, or change the backend in ~/.keras/keras.json."
    )
    needed = f"tf_largeout {__version__} needs Keras 3 with its TensorFlow or JAX backend"
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
            f"TensorFlow {TENSORFLOW_VERSIONS}. Install one: {_INSTALL}"
        )


def choose(path: pathlib.Path, asked: str, is_named: bool, on_gpus: bool) -> Ops:
    """Returns the ops of this process.

    Args:
        path: The op library. It may be missing.
        asked: "native", "stock", or "": native ops if the library loads, else stock ops.
        is_named: Whether the user has named the library, so that it must load.
        on_gpus: Whether layers are on a GPU. With "", the ops are then stock ops, except those
            for which the library has usable GPU kernels.

    Raises:
        ImportError: If `asked` has another value, or the library must load and does not.
    """
    if asked not in ("", "native", "stock"):
        raise ImportError(
            f"LARGEOUT_OPS is {asked!r}. Expected native (the op library, or fail), stock "
            "(TensorFlow's own operations) or unset (the op library if it fits the installed "
            "TensorFlow, else stock)."
        )
    if asked == "stock":
        return Ops("stock", _stock(), "LARGEOUT_OPS is stock")
    try:
        if asked == "" and on_gpus:
            return _for_gpus(path)
        reason = f"{path.name} is for TensorFlow {tf.__version__}"
        return Ops("native", load(path), f"LARGEOUT_OPS is {asked}" if asked else reason)
    except NoLibraryError as error:
        if asked or is_named:
            raise
        return Ops("stock", _stock(), error.reason, is_fallback=True)


def _for_gpus(path: pathlib.Path) -> Ops:
    """Returns stock ops, and from the library those ops that have usable GPU kernels."""
    reason = "LARGEOUT_GPU is 1, and TensorFlow has a GPU"
    stock = _stock()
    if not has_gpu_kernels(path) or check_gpus(path):
        return Ops("stock", stock, reason)
    library = vars(load(path, gpu_kernels=True))
    kept = {name: op for name, op in library.items() if name.startswith(_WITH_GPU_KERNELS)}
    functions = types.SimpleNamespace(**{**vars(stock), **kept})
    reason = f"{reason}; those with GPU kernels come from {path.name}"
    return Ops("stock", functions, reason, has_gpu_kernels=True)


def _stock() -> types.ModuleType:
    from tf_largeout.ops import stock

    return stock


def log_choice(ops: Ops) -> None:
    """Logs in one line which ops this process uses, and why; a fallback is a warning."""
    if ops.is_fallback:
        _LOG.warning(
            "tf_largeout uses TensorFlow's own operations, which are slower on CPUs: %s. "
            "LARGEOUT_OPS=stock in the environment has the same effect, without this warning.",
            ops.reason,
        )
    else:
        _LOG.info("tf_largeout uses %s ops: %s.", ops.kind, ops.reason)


def library_for(version: str, folder: pathlib.Path = _FOLDER) -> pathlib.Path:
    """Returns the path of the package's op library for TensorFlow `version`.

    An installation from source has one library, `_largeout_ops.so`. A wheel has one for each
    minor version of TensorFlow, such as `_largeout_ops_2_18.so`. The file may be missing.
    """
    in_wheel = folder / library_name(version)
    return in_wheel if in_wheel.exists() else folder / library_name()


def check_library(path: pathlib.Path, version: str) -> None:
    """Raises a NoLibraryError unless the library exists and is for TensorFlow `version`."""
    if not path.exists():
        others = sorted(one.name for one in path.parent.glob("_largeout_ops*.so"))
        raise NoLibraryError(
            f"tf_largeout {__version__} has no op library for the installed TensorFlow "
            f"{version}: {path} is missing. Op libraries in that folder: "
            f"{', '.join(others) or 'none'}. They exist for TensorFlow {LIBRARY_WINDOW}"
        )
    built_for = compiled_for(path)
    if minor_of(built_for) != minor_of(version):
        raise NoLibraryError(
            f"The op library {path} was compiled for TensorFlow {built_for}. Installed: "
            f"TensorFlow {version}. A library works with the minor version that it was "
            "compiled for"
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

    If the GPUs or the driver of this machine cannot run the kernels, a warning is logged.
    """
    record = _text_in(path, gpu_cards.RECORD)
    if record is None or not tf.test.is_built_with_cuda():
        return None
    reason = gpu_cards.why_unusable(record, gpu_cards.find_machine())
    if reason:
        _LOG.warning("The GPU kernels of tf_largeout are not used. %s.", reason)
    return reason


def _text_in(path: pathlib.Path, pattern: bytes) -> bytes | None:
    """Returns the first match of `pattern` in a file, or None; also if the file is missing."""
    if not path.exists() or path.stat().st_size == 0:
        return None
    with path.open("rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = re.search(pattern, content)
            return found.group() if found else None


def load(path: pathlib.Path, gpu_kernels: bool = False) -> types.ModuleType:
    """Returns the module with the op functions of a library.

    Args:
        path: The op library.
        gpu_kernels: Whether to register its GPU kernels, too.

    Raises:
        NoLibraryError: If the library is for another TensorFlow, or does not load.
    """
    check_library(path, tf.__version__)
    try:
        with contextlib.nullcontext() if gpu_kernels else _gpu_kernels_off():
            return tf.load_op_library(str(path))
    except tf.errors.OpError as error:
        raise NoLibraryError(
            f"The op library {path} does not load: {error.message}. Installed: TensorFlow "
            f"{tf.__version__}"
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


def _wants_gpus() -> bool:
    """Returns whether LARGEOUT_GPU is 1 and TensorFlow has a GPU; warns if it has none."""
    value = os.environ.get("LARGEOUT_GPU", "")
    if value not in ("", "0", "1"):
        raise ImportError(
            f"LARGEOUT_GPU is {value!r}. Expected 1 (output layers on the first GPU), 0 or "
            "unset (on the CPU)."
        )
    has_gpus = value == "1" and bool(tf.config.list_physical_devices("GPU"))
    if value == "1" and not has_gpus:
        _LOG.warning("LARGEOUT_GPU is 1, but TensorFlow finds no GPU: the CPU is used.")
    return has_gpus


_REMEDIES = (
    "Do one of the following: (1) set LARGEOUT_OPS=stock in the environment, which uses "
    "TensorFlow's own operations, slower on CPUs; (2) compile the ops for the installed "
    "TensorFlow, in the source folder of tf_largeout: LARGEOUT_NATIVE=1 pip install "
    "--force-reinstall --no-deps . (with -e if it is an editable install); (3) install a "
    "TensorFlow that the op library is tested with, pip install "
    f'"{CPU_PACKAGE}{LIBRARY_WINDOW}" or "tensorflow[and-cuda]{LIBRARY_WINDOW}", and do (2), '
    "or install a wheel for it."
)
check_tensorflow(tf.__version__)
check_keras()
_NAMED = os.environ.get("LARGEOUT_OPS_LIBRARY")  # Such as a build with sanitizers.
# The path of the op library. It may be missing if OPS is "stock".
LOADED = pathlib.Path(_NAMED or library_for(tf.__version__))
_CHOSEN = choose(LOADED, os.environ.get("LARGEOUT_OPS", ""), bool(_NAMED), _wants_gpus())
log_choice(_CHOSEN)
OPS = _CHOSEN.kind  # "native" or "stock"
RUNS_ON_GPUS = OPS == "stock"  # Whether the ops accept variables on GPUs.
HAS_GPU_KERNELS = _CHOSEN.has_gpu_kernels
gen_ops: Any = _CHOSEN.functions
