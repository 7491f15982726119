"""The op library with CUDA kernels: notices of the build, and use without a GPU."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from build_tools import cmake, gpu, tensorflow_install
from build_tools.tensorflow_install import TensorFlow
from tests import fake_cuda
from tests.source_tree import ROOT
from tf_largeout.ops import gpu_cards

KERNELS = b"\0largeout built with kernels for gpus 75-real,75-virtual by cuda 12.4.99\0"


def notice(library, **environment):
    """Returns the notice about GPUs of a new process that has built `library`."""
    code = (
        "import pathlib, sys; from build_tools import gpu;"
        "print(gpu.notice(pathlib.Path(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(library)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_build_warns_if_the_kernels_do_not_run_on_this_machine(tmp_path):
    library = tmp_path / "gpu.so"
    library.write_bytes(KERNELS)
    fake = fake_cuda.environment(tmp_path, driver=12040, card=70)
    warning = notice(library, **fake)
    assert warning.startswith("warning: the CUDA kernels will not be used on this machine.")
    assert "GPU 'Fake V100' has compute capability 7.0" in warning
    assert notice(library, **{**fake, "FAKE_CUDA_CARD": "75"}) == "None"
    assert notice(library) == "None"


@pytest.fixture
def offer(tmp_path, monkeypatch):
    """Sets which TensorFlow and which nvcc are installed."""

    def set_both(distribution, has_nvcc):
        found = TensorFlow("2.21.0", tmp_path, distribution) if distribution else None
        monkeypatch.setattr(tensorflow_install, "find", lambda: found)
        monkeypatch.setenv("NVCC", "true" if has_nvcc else "nvcc-that-nobody-has")
        monkeypatch.delenv("LARGEOUT_CUDA", raising=False)

    return set_both


def test_missing_kernels_are_reported_if_the_user_may_want_them(tmp_path, offer, monkeypatch):
    library = tmp_path / "cpu.so"
    library.write_bytes(b"largeout built for tensorflow 2.21.0")
    for distribution, has_nvcc in [
        ("tensorflow-cpu", True),
        ("tensorflow", False),
        (None, True),
    ]:
        offer(distribution, has_nvcc)
        assert gpu.notice(library) is None
    offer("tensorflow", True)
    assert "LARGEOUT_CUDA=1" in gpu.notice(library)
    monkeypatch.setenv("LARGEOUT_CUDA", "0")
    assert gpu.notice(library) is None


def test_a_build_prints_the_notice_and_is_for_all_gpus(tmp_path, monkeypatch, capsys):
    calls = []

    def build(*arguments):
        calls.append(arguments)
        built = tmp_path / "built.so"
        built.write_bytes(KERNELS)
        return built

    monkeypatch.setattr(cmake, "build", build)
    monkeypatch.setattr(gpu, "notice", lambda path: f"notice about {path.name}")
    monkeypatch.setenv("LARGEOUT_CUDA", "1")
    cmake.build_op_library(tmp_path / "copy.so")
    assert calls == [("op_library", "cuda", "CMAKE_CUDA_ARCHITECTURES=")]
    assert capsys.readouterr().err == "notice about copy.so\n"


@pytest.mark.slow
def test_a_library_with_cuda_kernels_loads_and_works_without_a_gpu(tmp_path):
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc")
    library = tmp_path / "_largeout_ops.so"
    cmake.build_op_library(library, "cuda")
    assert b"LshBuildOp<GpuLsh" in library.read_bytes()
    architectures = re.search(gpu_cards.RECORD, library.read_bytes())[1].decode().split(",")
    assert architectures[-2:] == ["90-real", "90-virtual"]
    assert "80-real" in architectures
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-n", "0", "tests/papers/lsh/lsh_ops_test.py"],
        cwd=ROOT,
        env={**os.environ, "LARGEOUT_OPS_LIBRARY": str(library)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
