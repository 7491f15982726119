"""The op library with GPU kernels works on a machine without a GPU."""

import os
import shutil
import subprocess
import sys

import pytest

from build_tools import cmake
from tests.source_tree import ROOT


@pytest.mark.slow
def test_a_library_with_gpu_kernels_loads_and_works_without_a_gpu(tmp_path):
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    library = tmp_path / "_largeout_ops.so"
    cmake.build_op_library(library, "gpu")
    assert b"RowUpdateGpuOp" in library.read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-n", "0", "tests/ops/row_ops_test.py"],
        cwd=ROOT,
        env={**os.environ, "LARGEOUT_OPS_LIBRARY": str(library)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
