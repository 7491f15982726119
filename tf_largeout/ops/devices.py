"""Where the variables of our ops can be: on a GPU only if our GPU kernels run there."""

import contextlib
import functools
import logging
from contextlib import AbstractContextManager

import keras
import tensorflow as tf

from tf_largeout.ops import library
from tf_largeout.types import Variable

_OWN_JOBS = (None, "localhost", "chief")  # names of a process that is no server
_NOT_BUILT = (
    "The op library of tf_largeout was built without kernels for GPUs. To build them, install "
    "tf_largeout again with LARGEOUT_GPU=1 in the environment and CUDA's nvcc on the PATH; see "
    "docs/gpu.md"
)


def supported_device_scope() -> AbstractContextManager[None]:
    """The scope in which to make variables that our ops take by their handles.

    The CPU, with a warning, if TensorFlow has a GPU that our kernels do not run on; else it
    changes nothing.
    """
    if library.HAS_GPU_KERNELS or not tf.config.list_logical_devices("GPU"):
        return contextlib.nullcontext()
    _warn()
    return tf.device("CPU:0")


def device_scope_of(variable: Variable) -> AbstractContextManager[None]:
    """The scope of the device that `variable` is on, for what ops take together with it.

    On a machine with a GPU TensorFlow would put the rest there, wherever `variable` is; and
    where that is another machine, on this one, if it is asked inside of a function. A strategy
    places what it distributes by itself.
    """
    return _scope(_value_of(variable).device, variable)


def server_of(variable: Variable) -> str | None:
    """The device of `variable`, if that is one of another process; else None."""
    value = _value_of(variable)
    if isinstance(value, tf.distribute.DistributedValues) or not value.device:
        return None
    job = tf.DeviceSpec.from_string(value.device).job
    return None if job in _OWN_JOBS else value.device


def server_scope_of(variable: Variable) -> AbstractContextManager[None]:
    """The scope of the device of `variable` if that is one of another process; else none."""
    server = server_of(variable)
    return contextlib.nullcontext() if server is None else tf.device(server)


def host_scope(variable: Variable) -> AbstractContextManager[None]:
    """The scope of the CPU, for the counters that decide what a step on `variable` does.

    If they were on a GPU, the CPU would wait in each step for all that is queued there. It is
    the CPU of the machine that has the variable.
    """
    server = server_of(variable)
    if server is None:
        return _scope("CPU:0", variable)
    host = tf.DeviceSpec.from_string(server).replace(device_type="CPU", device_index=0)
    return tf.device(host.to_string())


def has_kernels_for(variable: Variable) -> bool:
    """Whether our ops can take `variable`, as far as its device goes."""
    return library.HAS_GPU_KERNELS or not is_on_gpu(variable)


def is_on_gpu(variable: Variable) -> bool:
    """Whether `variable` is on a GPU, as far as is known."""
    return "GPU" in (_value_of(variable).device or "")


def check_device(variable: Variable) -> None:
    """Checks that our ops can take `variable`.

    Args:
        variable: `tf.Variable` or `keras.Variable`.

    Raises:
        ValueError: If it is on a GPU and our GPU kernels do not run there.
    """
    if has_kernels_for(variable):
        return
    value = _value_of(variable)
    raise ValueError(
        f"Variable '{getattr(variable, 'path', value.name)}' is on {value.device}, where the "
        "ops of tf_largeout do not run. Build its layer and the optimizer under "
        f"tf.device('CPU:0'). {library.GPUS_UNUSABLE or _NOT_BUILT}."
    )


def _scope(device: str, variable: Variable) -> AbstractContextManager[None]:
    """The scope of a device; no scope under a strategy, and on this machine without a GPU."""
    distributed = isinstance(_value_of(variable), tf.distribute.DistributedValues)
    if distributed or not device:
        return contextlib.nullcontext()
    if tf.config.list_logical_devices("GPU") or server_of(variable):
        return tf.device(device)
    return contextlib.nullcontext()


def _value_of(variable: Variable) -> tf.Variable:
    return variable.value if isinstance(variable, keras.Variable) else variable


@functools.cache
def _warn() -> None:
    """Warns that layers are on the CPU. The import has warned if `GPUS_UNUSABLE` is set."""
    if not library.GPUS_UNUSABLE:
        logging.getLogger("tf_largeout").warning(
            "The layers of tf_largeout and their slots are on the CPU. %s.", _NOT_BUILT
        )
