"""The variables that our ops use: their resource handles and their devices.

Variables may be on a GPU only if the ops are stock operations.
"""

import contextlib
import functools
import logging
import os
from contextlib import AbstractContextManager
from typing import Any

import keras
import tensorflow as tf

from tf_largeout import keras_internals
from tf_largeout.ops import library, places
from tf_largeout.types import Variable, VariableOrHandle

_LOCAL_JOBS = (None, "localhost", "chief")  # Job names of this process.
_REMEDY = (
    "To put them on the GPU, set LARGEOUT_GPU=1 in the environment before the program starts; "
    "see docs/guides/gpu.md"
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

    Without a GPU, the scope has no effect. With a GPU and stock operations, an enclosing
    `tf.device` decides. If there is none, the device is the first GPU if `LARGEOUT_GPU=1` is in
    the environment, else the CPU, with a warning. With native ops, it is the CPU, with a
    warning.
    """
    gpu = places.first_gpu()
    if not gpu:
        return contextlib.nullcontext()
    if library.RUNS_ON_GPUS:
        if keras_internals.device_of_scope():
            return contextlib.nullcontext()
        if os.environ.get("LARGEOUT_GPU") == "1":
            return tf.device(gpu)
    _warn()
    return tf.device(places.HOST)


def runs_stock() -> bool:
    """Returns whether the ops are stock operations."""
    return library.OPS == "stock"


def host_ids_scope() -> AbstractContextManager[None]:
    """Returns the scope of the host, for labels, draws, counters and other ids.

    With these on the host, a step on a GPU does not wait for them. The scope has no effect
    without a GPU, and with native ops.
    """
    return places.host_scope() if library.OPS == "stock" else contextlib.nullcontext()


def device_scope_of(variable: Variable) -> AbstractContextManager[None]:
    """Returns the scope of the device of `variable`, for tensors and ops that use it.

    Without this scope, TensorFlow places them on the GPU even if `variable` is not on the GPU.
    Inside a function, it places them on this machine even if `variable` is on a server. Under a
    strategy that distributes `variable`, the scope has no effect.
    """
    value = _value_of(variable)
    if isinstance(value, tf.distribute.DistributedValues) or not value.device:
        return contextlib.nullcontext()
    has_gpu = tf.config.list_logical_devices("GPU") or places.STAND_IN
    if has_gpu or server_of(variable):
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
    has_gpu = tf.config.list_logical_devices("GPU") or places.STAND_IN
    if is_distributed or not has_gpu:
        return contextlib.nullcontext()
    return tf.device(places.HOST)


def why_not_compiled() -> str | None:
    """Returns why XLA cannot compile steps that use our ops, and what to do; None if it can."""
    if library.OPS != "stock":
        return (
            "XLA cannot compile the op library of tf_largeout. With LARGEOUT_OPS=stock in the "
            "environment, before the import, tf_largeout uses operations of TensorFlow, which "
            "it can compile. On a CPU, the op library without XLA is faster."
        )
    if tf.config.list_logical_devices("GPU"):
        return (
            "compiled steps have not run on a GPU yet, so XLA is refused where TensorFlow has "
            "one. `make gpu-check` runs them. Leave jit_compile out."
        )
    return None


def has_kernels_for(variable: Variable) -> bool:
    """Returns whether our ops have kernels for the device of `variable`."""
    return library.RUNS_ON_GPUS or not is_on_gpu(variable)


def is_on_gpu(variable: Variable) -> bool:
    """Returns whether `variable` is known to be on a GPU."""
    device = _value_of(variable).device or ""
    return "GPU" in device or bool(places.STAND_IN and device.endswith(places.STAND_IN))


def check_device(variable: Variable) -> None:
    """Raises a ValueError if `variable` is on a GPU on which our ops do not run."""
    if library.RUNS_ON_GPUS or not is_on_gpu(variable):
        return
    value = _value_of(variable)
    raise ValueError(
        f"Variable '{getattr(variable, 'path', value.name)}' is on {value.device}, where the "
        "ops of tf_largeout do not run. Build its layer and the optimizer under "
        f"tf.device('CPU:0'). {_REMEDY}."
    )


def _value_of(variable: VariableOrHandle) -> Any:
    return variable.value if isinstance(variable, keras.Variable) else variable


@functools.cache
def _warn() -> None:
    """Warns once that layers are on the CPU."""
    logging.getLogger("tf_largeout").warning(
        "The layers of tf_largeout and their slots are on the CPU. %s.", _REMEDY
    )
