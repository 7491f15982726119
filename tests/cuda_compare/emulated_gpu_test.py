"""Our steps by the launchers themselves, through their C functions, on the emulated GPU."""

import numpy as np
import pytest

from build_tools import targets
from custom_ops.cuda.compare import library, measure, ours
from custom_ops.cuda.compare.__main__ import REFERENCES
from custom_ops.cuda.compare.library import CudaError, DeviceMemory
from custom_ops.cuda.compare.step import TASKS
from tests.cuda_compare.steps_test import inputs


@pytest.fixture(scope="module")
def launchers():
    made = targets.ROOT / "build" / "libemulated_compare.so"
    targets.build_emulated_compare(made)
    return library.load(made)


class ProductsOnTheHost:
    """What `Blas` does, on copies."""

    def __init__(self, launchers):
        self._launchers = launchers
        self._memory = DeviceMemory(launchers)

    def set_precision(self, precision):
        pass

    def product(self, a, b, out, transpose_a=False, transpose_b=False, add=False):
        left, right = self._memory.to_host(a), self._memory.to_host(b)
        product = (left.T if transpose_a else left) @ (right.T if transpose_b else right)
        product += self._memory.to_host(out) if add else 0
        self._launchers.call("copy_from_host", product.ctypes.data, out.bytes, out)


@pytest.mark.parametrize("task", TASKS)
def test_ours_computes_the_reference(task, launchers):
    expected = REFERENCES[task](inputs(task))
    for offer in ours.offers(launchers, ProductsOnTheHost(launchers))[task]:
        made = measure.measure(task, offer, inputs(task), expected, 2)
        assert made.failure == ""
        assert max(made.errors.values()) < 1e-4


def test_the_device_has_a_name_and_its_memory_is_not_the_host_s(launchers):
    assert launchers.device_name() == "emulated GPU"
    array = DeviceMemory(launchers).copy(np.ones(3))
    with pytest.raises(CudaError, match="copy_to_host: invalid copy direction"):
        values = np.empty(3)
        launchers.call("copy_to_host", values.ctypes.data, 24, array.pointer)
