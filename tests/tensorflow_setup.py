"""Devices, seeds, SIMD levels and skipped GPU tests of all processes that run tests."""

import ctypes
import functools
import gc
import importlib
import os
import pathlib
from unittest import mock

import keras
import pytest
import tensorflow as tf

from tests import gpu
from tf_largeout.ops import library

# TF32 rounds the factors of matrix products to 10 bits of mantissa.
tf.config.experimental.enable_tensor_float_32_execution(False)


def pytest_collection_modifyitems(items):
    if any("gpu" in item.keywords for item in items) and (reason := gpu.missing()):
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish():
    """Excludes imported objects from garbage collection, which makes it faster."""
    gc.collect()
    gc.freeze()


def pytest_configure(config):
    """Configures devices before any op runs: two logical CPUs for MirroredStrategy, and
    no GPU except for `pytest -m gpu`, as the other tests are for the CPU."""
    if config.getoption("markexpr") != "gpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 2
    )
    for device in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(device, True)


def _kept_kernels():
    """Keeps TensorFlow's kernel cache when a seed is set, which makes tests much faster.

    TensorFlow clears the cache because kernels of `tf.random` have a state. So use
    `tf.random.stateless_*` or NumPy in tests.
    """
    calls = importlib.import_module("tensorflow.python.pywrap_tfe")
    return mock.patch.object(calls, "TFE_ContextClearCaches", lambda _: None)


@pytest.fixture(autouse=True)
def fixed_seeds():
    """Each test gets the same random numbers, independent of previous tests."""
    with _kept_kernels():
        keras.utils.set_random_seed(20_260_101)
        yield
        keras.backend.clear_session(free_memory=False)


@pytest.fixture(autouse=True, scope="module")
def freed_kernels():
    """Frees the memory of the tests of a file.

    TensorFlow keeps some objects for good. They are excluded from garbage collection, which
    would otherwise take longer after each file, up to seconds.
    """
    yield
    keras.backend.clear_session()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_product_that_aborts(monkeypatch):
    """Skips tests of mixed precision if TensorFlow's 16-bit products would abort the process.

    TensorFlow checks the real processor, but oneDNN has no such product for the older one that
    ONEDNN_MAX_CPU_ISA emulates. On a real older processor TensorFlow uses another product.
    """
    if not os.environ.get("ONEDNN_MAX_CPU_ISA") or not _has_16_bit_products():
        return
    make = keras.DTypePolicy.__init__

    def make_or_skip(self, name=None):
        if "float16" in (name or ""):
            pytest.skip("TensorFlow's 16-bit products abort under ONEDNN_MAX_CPU_ISA")
        make(self, name)

    monkeypatch.setattr(keras.DTypePolicy, "__init__", make_or_skip)


@functools.cache
def _has_16_bit_products():
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    return "_fp16" in flags or "_bf16" in flags


@pytest.fixture
def cuda_kernels():
    """Skips a test of CUDA kernels if the op library has none."""
    if not gpu.has_cuda_kernels():
        pytest.skip("no CUDA kernels: build them with LARGEOUT_CUDA=1, and set LARGEOUT_GPU=1")


@pytest.fixture
def set_simd_level(monkeypatch):
    """Returns a function that sets the SIMD level, or the best level below it.

    The stock operations have one level, so a test at another level is skipped.
    """
    if library.OPS == "stock":
        yield lambda level: None if level == "generic" else pytest.skip("no SIMD levels")
        return
    ops = ctypes.CDLL(str(library.LOADED))

    def set_level(level):
        monkeypatch.setenv("LARGEOUT_SIMD_LEVEL", level)
        ops.largeout_read_simd_level()

    yield set_level
    monkeypatch.undo()
    ops.largeout_read_simd_level()


@pytest.fixture(params=["generic", "avx2", "avx512"])
def for_all_simd_levels(request, set_simd_level):
    """Runs the test at each SIMD level."""
    set_simd_level(request.param)
    return request.param


@pytest.fixture(params=["generic", "avx2", "avx512", "amx"])
def for_all_product_levels(request, set_simd_level):
    """Runs the test at each SIMD level and with AMX, which bfloat16 products use."""
    set_simd_level(request.param)
    return request.param
