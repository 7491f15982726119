"""The variables that our ops use: their resource handles and their devices.

They may be on a GPU only if our GPU kernels run there.
"""

import contextlib
import functools
import logging
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.ops import library
from tf_largeout.types import Variable, VariableOrHandle

_LOCAL_JOBS = (None, "localhost", "chief")  # Job names of this process.
_NOT_BUILT = (
    "The op library of tf_largeout was built without kernels for GPUs. To build them, install "
    "tf_largeout again with LARGEOUT_GPU=1 in the environment and CUDA's nvcc on the PATH; see "
    "docs/gpu.md"
)


def handle_of(variable_or_handle: VariableOrHandle, watch: bool = False) -> tf.Tensor:
    """Returns the handle of a `tf.Variable` or `keras.Variable`; returns a handle unchanged.

    With `watch`, a `GradientTape` watches the variable, as differentiable ops need.
    """
    variable = _value_of(variable_or_handle)
    if not hasattr(variable, "handle"):
        return variable
    if watch:
        # A `GradientTape` watches a variable that is read, but not its handle: read 0 rows.
        tf.gather(variable, tf.zeros([0], tf.int32))
    return variable.handle


def optional_handle(
    variable_or_handle: VariableOrHandle | None, watch: bool = False
) -> list[tf.Tensor]:
    """Returns a list with the handle, or an empty list for None."""
    return [] if variable_or_handle is None else [handle_of(variable_or_handle, watch)]


def supported_device_scope() -> AbstractContextManager[None]:
    """Returns the device scope in which to create variables that our ops access by handle.

    It is the CPU, with a warning, if TensorFlow has a GPU on which our kernels do not run.
    Otherwise the scope changes nothing.
    """
    if library.HAS_GPU_KERNELS or not tf.config.list_logical_devices("GPU"):
        return contextlib.nullcontext()
    _warn()
    return tf.device("CPU:0")


def device_scope_of(variable: Variable) -> AbstractContextManager[None]:
    """Returns the scope of the device of `variable`, for tensors and ops that use it.

    Without this scope, TensorFlow places them on the GPU even if `variable` is not on the GPU.
    Inside a function, it places them on this machine even if `variable` is on a server. Under a
    strategy that distributes `variable`, the scope has no effect.
    """
    value = _value_of(variable)
    if isinstance(value, tf.distribute.DistributedValues) or not value.device:
        return contextlib.nullcontext()
    if tf.config.list_logical_devices("GPU") or server_of(variable):
        return tf.device(value.device)
    return contextlib.nullcontext()


def server_of(variable: Variable) -> str | None:
    """Returns the device of `variable` if it belongs to another process, else None."""
    value = _value_of(variable)
    if isinstance(value, tf.distribute.DistributedValues) or not value.device:
        return None
    job = tf.DeviceSpec.from_string(value.device).job
    return None if job in _LOCAL_JOBS else value.device


def server_scope_of(variable: Variable) -> AbstractContextManager[None]:
    """Returns the device scope of a `variable` on a server, else a scope without effect."""
    server = server_of(variable)
    return contextlib.nullcontext() if server is None else tf.device(server)


def host_scope(variable: Variable) -> AbstractContextManager[None]:
    """Returns the scope of the CPU of the machine that holds `variable`.

    Use it for counters that decide what a training step does. If they were on a GPU, each step
    would wait until the GPU's queue is empty.
    """
    server = server_of(variable)
    if server is not None:
        host = tf.DeviceSpec.from_string(server).replace(device_type="CPU", device_index=0)
        return tf.device(host.to_string())
    is_distributed = isinstance(_value_of(variable), tf.distribute.DistributedValues)
    if is_distributed or not tf.config.list_logical_devices("GPU"):
        return contextlib.nullcontext()
    return tf.device("CPU:0")


def why_not_compiled() -> str | None:
    """Returns why XLA cannot compile steps that use our ops, and what to do; None if it can."""
    if library.OPS != "stock":
        return (
            "XLA cannot compile the op library of tf_largeout. With LARGEOUT_OPS=stock in the "
            "environment, before the import, tf_largeout uses operations of TensorFlow, which "
            "it can compile. On a CPU, the op library without XLA is faster."
        )
    if tf.config.list_logical_devices("GPU"):
        return "this has not been tried on a GPU. Leave jit_compile=True out."
    return None


def has_kernels_for(variable: Variable) -> bool:
    """Returns whether our ops have kernels for the device of `variable`."""
    return library.HAS_GPU_KERNELS or not is_on_gpu(variable)


def is_on_gpu(variable: Variable) -> bool:
    """Returns whether `variable` is known to be on a GPU."""
    return "GPU" in (_value_of(variable).device or "")


def check_device(variable: Variable) -> None:
    """Raises a ValueError if `variable` is on a GPU on which our GPU kernels do not run."""
    if library.HAS_GPU_KERNELS or not is_on_gpu(variable):
        return
    value = _value_of(variable)
    raise ValueError(
        f"Variable '{getattr(variable, 'path', value.name)}' is on {value.device}, where the "
        "ops of tf_largeout do not run. Build its layer and the optimizer under "
        f"tf.device('CPU:0'). {library.GPUS_UNUSABLE or _NOT_BUILT}."
    )


def _value_of(variable: VariableOrHandle) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable


@functools.cache
def _warn() -> None:
    """Warns once that layers are on the CPU, unless the import has already warned."""
    if not library.GPUS_UNUSABLE:
        logging.getLogger("tf_largeout").warning(
            "The layers of tf_largeout and their slots are on the CPU. %s.", _NOT_BUILT
        )
