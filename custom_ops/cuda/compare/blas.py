"""Matrix products by cuBLAS, which TensorFlow multiplies with too, called through ctypes.

cuBLAS is found when the comparison runs: in the process, where PyTorch or JAX have loaded
it, in their packages, or in a CUDA toolkit. Nothing of it is needed to build.
"""

import ctypes
import glob
import importlib.util
import pathlib
from collections.abc import Iterator
from typing import Any

from custom_ops.cuda.compare.library import CudaError, DeviceArray

# cublasMath_t by the name of the precision.
_MATH_MODES = {"float32": 0, "TF32": 3}
_NOT_TRANSPOSED, _TRANSPOSED = 0, 1


class Blas:
    """A handle of cuBLAS on the default stream.

    Args:
        functions: what has cuBLAS's functions as attributes: `load` gives it a ctypes.CDLL.
    """

    def __init__(self, functions: Any):
        self._functions = functions
        self._handle = ctypes.c_void_p()
        self._check("cublasCreate_v2", ctypes.byref(self._handle))

    @property
    def version(self) -> int:
        """The version: 130100 for 13.1."""
        version = ctypes.c_int()
        self._check("cublasGetVersion_v2", self._handle, ctypes.byref(version))
        return version.value

    def set_precision(self, precision: str) -> None:
        """Sets what products are made of: "float32", or "TF32" on tensor cores."""
        self._check("cublasSetMathMode", self._handle, _MATH_MODES[precision])

    def product(
        self,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray,
        transpose_a: bool = False,
        transpose_b: bool = False,
        add: bool = False,
    ) -> None:
        """Queues out = op(a) op(b), or with `add` out += op(a) op(b).

        Args:
            a: `[rows, inner]`, or transposed `[inner, rows]`, float32.
            b: `[inner, columns]`, or transposed `[columns, inner]`, float32.
            out: `[rows, columns]`, float32.
            transpose_a: whether op transposes a.
            transpose_b: whether op transposes b.
            add: whether to add to `out`.

        Raises:
            CudaError: if cuBLAS does not take it.
        """
        # cuBLAS goes by columns: a matrix by rows is its transpose there, and
        # out^T = op(b)^T op(a)^T.
        rows, columns = out.shape
        inner = a.shape[0] if transpose_a else a.shape[1]
        one, beta = ctypes.c_float(1), ctypes.c_float(1 if add else 0)
        self._check(
            "cublasSgemm_v2",
            self._handle,
            _TRANSPOSED if transpose_b else _NOT_TRANSPOSED,
            _TRANSPOSED if transpose_a else _NOT_TRANSPOSED,
            *(columns, rows, inner),
            ctypes.byref(one),
            *(ctypes.c_void_p(b.pointer), b.shape[1]),
            *(ctypes.c_void_p(a.pointer), a.shape[1]),
            ctypes.byref(beta),
            *(ctypes.c_void_p(out.pointer), columns),
        )

    def _check(self, name: str, *arguments: Any) -> None:
        status = getattr(self._functions, name)(*arguments)
        if status != 0:
            raise CudaError(f"{name} returned {status}")


def load() -> Blas | None:
    """Returns cuBLAS where it is found, else None."""
    for name in _names():
        # Of the same release, from the same folder.
        beside = pathlib.Path(name)
        for part in (beside.with_name(beside.name.replace("cublas", "cublasLt")), beside):
            try:
                functions = ctypes.CDLL(str(part), mode=ctypes.RTLD_GLOBAL)
            except OSError:
                break
        else:
            return Blas(functions)
    return None


def _names() -> Iterator[str]:
    """Where cuBLAS may be: what is loaded, then the packages of PyTorch and JAX, then CUDA."""
    yield from ("libcublas.so.13", "libcublas.so.12")
    spec = importlib.util.find_spec("nvidia")
    folders = (
        [f"{one}/*/lib" for one in (spec.submodule_search_locations or [])] if spec else []
    )
    for folder in [*folders, "/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib"]:
        yield from sorted(glob.glob(f"{folder}/libcublas.so.1[23]"))
