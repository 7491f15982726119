"""The C functions of the launchers: what the header declares, and what the library has."""

import ctypes
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from build_tools import cuda, targets
from custom_ops.cuda.compare import blas, library
from custom_ops.cuda.compare.library import CudaError, DeviceMemory, LibraryError
from tests.cuda_compare.host_functions import HostBlas, HostFunctions, host_library

ROOT = targets.ROOT
SCRIPT = [sys.executable, "-m", "custom_ops.cuda.compare"]


def declared():
    return library.signatures(library.HEADER.read_text())


def test_every_function_of_the_header_is_read():
    code = re.sub(r"//.*", "", library.HEADER.read_text())
    assert list(declared()) == re.findall(r"(largeout_\w+)\(", code)


def test_types_become_those_of_ctypes():
    text = """
      // largeout_no(int i);
      int64_t largeout_size();
      const char* largeout_text(int status);
      int largeout_run(const float* x, int64_t n,
                       void** out);  // both
    """
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    assert library.signatures(text) == {
        "largeout_size": (number, []),
        "largeout_text": (ctypes.c_char_p, [ctypes.c_int]),
        "largeout_run": (ctypes.c_int, [pointer, number, pointer]),
    }
    with pytest.raises(LibraryError, match="'float'"):
        library.signatures("int largeout_wrong(float x);")


def test_what_the_steps_call_is_declared_with_as_many_arguments():
    """By name here; the steps' own tests convert all arguments by these signatures."""
    text = (library.HEADER.parent / "ours.py").read_text()
    called = set(re.findall(r'call\(\s*"(\w+)"', text))
    called |= {f"{name}_scratch_bytes" for name in re.findall(r'scratch\("(\w+)"', text)}
    assert {f"largeout_{name}" for name in called} <= set(declared())
    assert len(called) > 10


def test_arrays_go_to_the_device_and_back():
    functions = HostFunctions()
    memory = DeviceMemory(host_library(functions))
    values = np.arange(12.0).reshape(3, 4).T  # not dense
    np.testing.assert_array_equal(memory.to_host(memory.copy(values)), values)
    assert np.isnan(memory.to_host(memory.empty([2, 3]))).all()
    assert memory.to_host(memory.empty([0, 3])).shape == (0, 3)
    assert memory.bytes == 12 * 8 + 6 * 4
    memory.close()
    assert not functions.memory


def test_a_status_that_is_not_0_is_an_error_that_says_where_and_what():
    with pytest.raises(CudaError, match="allocate: out of memory"):
        DeviceMemory(host_library(HostFunctions(most_bytes=10))).empty([100])


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("add", [False, True])
def test_products_are_those_of_matrices_by_rows(transpose_a, transpose_b, add):
    random = np.random.default_rng(1)
    a, b = random.standard_normal((3, 4)), random.standard_normal((4, 5))
    memory = DeviceMemory(host_library(HostFunctions()))
    given = [
        memory.copy(one.T if transposed else one, np.float32)
        for one, transposed in ((a, transpose_a), (b, transpose_b))
    ]
    out = memory.copy(np.ones((3, 5)), np.float32) if add else memory.empty([3, 5])
    functions = HostBlas()
    made = blas.Blas(functions)
    made.set_precision("TF32")
    made.product(*given, out, transpose_a, transpose_b, add)
    np.testing.assert_allclose(memory.to_host(out), a @ b + add, rtol=1e-5, atol=1e-5)
    assert functions.math_modes == [3]
    assert made.version == 130100


def test_a_library_of_another_header_is_refused(tmp_path):
    with pytest.raises(LibraryError, match="build_tools cuda-compare"):
        library.load(tmp_path / "missing.so")
    source, made = tmp_path / "old.c", tmp_path / "old.so"
    source.write_text("int largeout_wait(void) { return 0; }")
    subprocess.run(["g++", "-x", "c", "-shared", "-fPIC", source, "-o", made], check=True)
    with pytest.raises(LibraryError, match="has no largeout_status_text"):
        library.load(made)


@pytest.mark.slow
def test_the_library_builds_loads_and_says_that_there_is_no_gpu(tmp_path):
    if cuda._command() is None:
        pytest.skip("no nvcc")
    made = tmp_path / "libcuda_compare.so"
    targets.build_cuda_compare(made)
    found = library.load(made)
    try:
        found.device_name()
    except CudaError:
        done = run_script("--library", made)
        assert done.returncode == 3
        assert done.stdout.startswith("No GPU to run on: ")
        assert done.stdout.endswith("Nothing was run.\n")


def run_script(*arguments):
    command = [*SCRIPT, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_the_comparison_needs_no_tensorflow():
    modules = "import sys, custom_ops.cuda.compare.__main__"
    banned = "not {'tensorflow', 'keras', 'tf_largeout', 'torch', 'jax'} & set(sys.modules)"
    code = f"{modules}; assert {banned}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_its_files_are_short_enough_to_read():
    for path in pathlib.Path(library.HEADER.parent).glob("*.py"):
        assert len(path.read_text().splitlines()) <= 300, path
