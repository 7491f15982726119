"""The launchers, called through ctypes. c_api.h declares them; its text is the only table."""

import ctypes
import math
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

HEADER = pathlib.Path(__file__).with_name("c_api.h")
PREFIX = "largeout_"
_TYPES = {"int": ctypes.c_int, "int64_t": ctypes.c_int64}


class CudaError(RuntimeError):
    """A launcher or a call of CUDA failed."""


class LibraryError(RuntimeError):
    """The library is missing, or is not that of c_api.h."""


def signatures(header: str) -> dict[str, tuple[Any, list[Any]]]:
    """Returns the functions of a header as ctypes: {name: (result type, argument types)}.

    Args:
        header: C++ declarations of int, int64_t and pointers.
    """
    code = re.sub(r"//.*", "", header)
    found = re.findall(rf"([\w ]+\*?)\s+({PREFIX}\w+)\(([^)]*)\);", code)
    return {
        name: (
            _type_of(result.strip(), result=True),
            [_argument(one) for one in _split(listed)],
        )
        for result, name, listed in found
    }


def _split(listed: str) -> list[str]:
    return [one.strip() for one in listed.split(",") if one.strip()]


def _argument(declared: str) -> Any:
    return _type_of(re.sub(r"\w+$", "", declared).strip(), result=False)


def _type_of(declared: str, result: bool) -> Any:
    if declared.endswith("*"):
        return ctypes.c_char_p if result else ctypes.c_void_p
    if declared not in _TYPES:
        raise LibraryError(f"{HEADER.name}: no ctypes type is known for {declared!r}")
    return _TYPES[declared]


class Library:
    """The functions of c_api.h, by their names without the prefix.

    Args:
        functions: what has them as attributes: `load` gives it a ctypes.CDLL.
    """

    def __init__(self, functions: Any):
        self._functions = functions

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function that returns a status.

        Raises:
            CudaError: if the status is not 0.
        """
        status = self.value(name, *arguments)
        if status != 0:
            text = self._functions.largeout_status_text(status).decode()
            raise CudaError(f"{name}: {text}")

    def value(self, name: str, *arguments: Any) -> int:
        """Calls a function that returns a number."""
        plain = [one.pointer if isinstance(one, DeviceArray) else one for one in arguments]
        return getattr(self._functions, PREFIX + name)(*plain)

    def device_name(self) -> str:
        """Returns the name of the GPU.

        Raises:
            CudaError: if there is none.
        """
        name = ctypes.create_string_buffer(256)
        self.call("device_name", name, len(name))
        return name.value.decode()


def load(path: pathlib.Path) -> Library:
    """Loads the library, which works without a GPU too.

    Raises:
        LibraryError: if it is missing or was made from another header.
    """
    advice = "Build it: python3 -m build_tools cuda-compare " + str(path)
    try:
        functions = ctypes.CDLL(str(path.absolute()))
    except OSError as error:
        raise LibraryError(f"{error}. {advice}") from error
    for name, (result, arguments) in signatures(HEADER.read_text()).items():
        if not hasattr(functions, name):
            raise LibraryError(f"{path} has no {name}. {advice}")
        function = getattr(functions, name)
        function.restype, function.argtypes = result, arguments
    return Library(functions)


class DeviceArray:
    """An array in device memory, dense, with the last axis together."""

    def __init__(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype):
        self.pointer, self.shape, self.dtype = pointer, shape, dtype

    @property
    def bytes(self) -> int:
        """Its size in memory."""
        return math.prod(self.shape) * self.dtype.itemsize


class DeviceMemory:
    """All arrays of a step; `close` frees them.

    Args:
        library: whose functions allocate and copy.
    """

    def __init__(self, library: Library):
        self._library = library
        self._pointers: list[int] = []
        self.bytes = 0

    def empty(self, shape: Sequence[int], dtype: Any = np.float32) -> DeviceArray:
        """Returns a new array, filled with NaN or -1.

        Raises:
            CudaError: if the memory does not suffice.
        """
        array = DeviceArray(0, tuple(int(size) for size in shape), np.dtype(dtype))
        pointer = ctypes.c_void_p()
        self._library.call("allocate", array.bytes, ctypes.byref(pointer))
        array.pointer = pointer.value or 0
        self._pointers.append(array.pointer)
        self.bytes += array.bytes
        return array

    def scratch(self, name: str, *sizes: int) -> DeviceArray:
        """Returns the scratch of a launcher, as large as its `..._scratch_bytes` says."""
        return self.empty([self._library.value(f"{name}_scratch_bytes", *sizes)], np.uint8)

    def copy(self, values: Any, dtype: Any = None) -> DeviceArray:
        """Returns a new array with the values of one on the host."""
        values = np.ascontiguousarray(values, dtype)
        array = self.empty(values.shape, values.dtype)
        self._library.call("copy_from_host", values.ctypes.data, array.bytes, array)
        return array

    def to_host(self, array: DeviceArray) -> np.ndarray:
        """Waits, and returns the values."""
        values = np.empty(array.shape, array.dtype)
        self._library.call("copy_to_host", array, array.bytes, values.ctypes.data)
        return values

    def close(self) -> None:
        """Frees all arrays."""
        while self._pointers:
            self._library.call("free", self._pointers.pop())
