"""Checks whether the GPU kernels of an op library run on the GPUs of this machine.

Uses the standard library only, because the build runs this file before anything is installed.
As a program it prints what `find_machine` reads.
"""

import ctypes
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

# What custom_ops/kernels/built_for_gpu.cc writes into a library with GPU kernels.
RECORD = rb"largeout built with kernels for gpus ([\w,-]+) by cuda (\d+)\.?(\d*)"

_CUDA = "libcuda.so.1"
_SECONDS = 60
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
_REINSTALL = "LARGEOUT_CUDA=1 NVCC=/path/to/nvcc pip install --force-reinstall --no-deps ."

Version = tuple[int, int]


class Machine(NamedTuple):
    """The newest CUDA that the driver supports, and the name and capability of each GPU."""

    driver: Version
    cards: list[tuple[str, Version]]


def find_machine() -> Machine | None:
    """Returns the driver and the GPUs of this machine, or None if CUDA finds no GPU.

    A subprocess queries CUDA. If this process did, later changes of CUDA_VISIBLE_DEVICES would
    have no effect, and processes forked from it could not use GPUs.
    """
    # In a frozen program, `sys.executable` is the program.
    if not pathlib.Path(sys.executable or "").name.startswith("python"):
        return None
    command = [sys.executable, "-I", "-S", __file__]
    try:
        ctypes.CDLL(_CUDA)
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return None
    if done.returncode != 0:
        return None
    driver, *cards = (line.split(maxsplit=2) for line in done.stdout.splitlines())
    return Machine(_version(driver), [(name, _version(numbers)) for *numbers, name in cards])


def why_unusable(record: bytes, machine: Machine | None) -> str | None:
    """Returns why GPU kernels cannot run on a machine, and what to do; None if they can.

    A GPU runs code compiled for its own compute capability, or for a lower minor number with
    the same major number. PTX runs on all newer GPUs if the driver is as new as the toolkit.
    The library has the text `record`, which matches `RECORD`.
    """
    found = re.search(RECORD, record)
    if found is None or machine is None:
        return None
    architectures = found[1].decode()
    if architectures == "emulated":
        return None
    toolkit = _version([found[2], found[3] or b"0"])
    code, ptx = _capabilities(architectures, "real"), _capabilities(architectures, "virtual")
    if machine.driver[0] < toolkit[0]:
        return _old_driver(machine.driver, toolkit, f"CUDA toolkit {machine.driver[0]}")
    for name, card in machine.cards:
        if any(major == card[0] and minor <= card[1] for major, minor in code):
            continue
        if not any(capability <= card for capability in ptx):
            return _unknown_card(name, card, code, bool(ptx))
        if machine.driver < toolkit:
            return _old_driver(machine.driver, toolkit, f"a toolkit that supports '{name}'")
    return None


def _capabilities(architectures: str, kind: str) -> list[Version]:
    """Returns the compute capabilities of one kind in a CMake list such as "75-real,80"."""
    found = re.findall(rf"\b(\d+)(\d)(?:-{kind})?(?=,|$)", architectures)
    return [_version(numbers) for numbers in found]


def _old_driver(driver: Version, toolkit: Version, other: str) -> str:
    return (
        f"The NVIDIA driver supports CUDA {_text(driver)}, and the GPU kernels of tf_largeout "
        f"were compiled with CUDA {_text(toolkit)}. Install a driver that supports CUDA "
        f"{_text(toolkit)}, or reinstall tf_largeout with {other} ({_REINSTALL})"
    )


def _unknown_card(name: str, card: Version, code: list[Version], newer: bool) -> str:
    known = ", ".join(map(_text, code)) + (" and newer" if newer else "")
    return (
        f"GPU '{name}' has compute capability {_text(card)}. The GPU kernels of tf_largeout "
        f"were compiled for {known}. To train on another GPU, hide this one with "
        "CUDA_VISIBLE_DEVICES. To train on this one, reinstall tf_largeout with a CUDA toolkit "
        f"that supports it ({_REINSTALL}); docs/gpu.md lists the toolkits"
    )


def _version(numbers: list[str] | list[bytes] | tuple[str, ...]) -> Version:
    return int(numbers[0]), int(numbers[1])


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _print_machine() -> None:
    """Prints the version of the driver, then a line for each GPU: "9 0 NVIDIA H100"."""
    cuda = ctypes.CDLL(_CUDA)
    print(*divmod(_ask(cuda.cuDriverGetVersion) // 10, 100))
    if cuda.cuInit(0) != 0:
        sys.exit("CUDA finds no GPU")
    for number in range(_ask(cuda.cuDeviceGetCount)):
        device = _ask(cuda.cuDeviceGet, number)
        name = ctypes.create_string_buffer(256)
        cuda.cuDeviceGetName(name, len(name), device)
        capability = [_ask(cuda.cuDeviceGetAttribute, one, device) for one in (_MAJOR, _MINOR)]
        print(*capability, name.value.decode(errors="replace"))


def _ask(function: "ctypes._NamedFuncPointer", *arguments: int) -> int:
    """Calls a function that writes an int to its first argument and returns an error code."""
    value = ctypes.c_int()
    status = function(ctypes.byref(value), *arguments)
    if status != 0:
        sys.exit(f"{function.__name__} returned {status}")
    return value.value


if __name__ == "__main__":
    _print_machine()
