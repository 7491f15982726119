"""Where tensors are: on the host or on a GPU.

Ids, labels, counters and draws are on the host, because they decide what a step does. Rows,
slots and logits are on the device of the variables. So in most steps, data moves only from the
host to the GPU, and the host does not wait for the GPU; docs/guides/gpu.md has the exceptions.
"""

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from tf_largeout.keras_internals import running_step

HOST = "CPU:0"
STAND_IN = ""  # A device that counts as the first GPU, in tests.


def first_gpu() -> str | None:
    """Returns the name of the first GPU, such as `GPU:0`, or None."""
    if STAND_IN:
        return STAND_IN
    return "GPU:0" if tf.config.list_logical_devices("GPU") else None


def is_gpu(device: str | None) -> bool:
    """Returns whether a device name, such as `tensor.device`, is that of a GPU."""
    device = device or ""
    return "GPU:" in device or bool(STAND_IN and device.endswith(STAND_IN))


@contextlib.contextmanager
def stand_in(device: str) -> Iterator[None]:
    """Within this context, a device such as `CPU:1` counts as the first GPU, for tests."""
    global STAND_IN
    before, STAND_IN = STAND_IN, device
    try:
        yield
    finally:
        STAND_IN = before


def host_scope() -> AbstractContextManager[None]:
    """Returns the scope of the CPU of this machine.

    It has no effect without a GPU, and in a step that XLA compiles, which runs on one device.
    """
    has_effect = first_gpu() and not running_step().is_compiled
    return tf.device(HOST) if has_effect else contextlib.nullcontext()


def scope_of(*tensors: Any) -> AbstractContextManager[None]:
    """Returns the scope of the host if all `tensors` are there, else one without effect."""
    return host_scope() if are_on_host(*tensors) else contextlib.nullcontext()


def are_on_host(*tensors: Any) -> bool:
    """Returns whether all tensors are known to be on the host.

    In a function, this is known only of tensors that were created within a scope of the host.
    """
    for tensor in tensors:
        device = tensor.device or ""
        if is_gpu(device) or tf.DeviceSpec.from_string(device).device_type != "CPU":
            return False
    return True
