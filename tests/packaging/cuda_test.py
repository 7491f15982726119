"""When the CUDA part is built, for which GPUs; nvcc is a script that answers as nvcc does."""

import os
import pathlib
import subprocess
import sys

import pytest

from build_tools import cuda, objects, parts, targets
from build_tools.errors import BuildError
from build_tools.objects import Object
from build_tools.tensorflow_install import TensorFlow

OF_CUDA_12 = (50, 60, 70, 75, 80, 86, 87, 89, 90)
OF_CUDA_13 = (75, 80, 86, 87, 88, 89, 90, 100, 110, 103, 120, 121)


def make_script(path, lines):
    path.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Returns a function that installs an nvcc, the only program on the PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("NVCC", "LARGEOUT_CUDA"):
        monkeypatch.delenv(name, raising=False)

    def with_architectures(*offered, name="nvcc"):
        arms = [f"echo compute_{a}" for a in offered]
        libraries = 'echo \'#$ LIBRARIES=  "-L/cuda/lib/stubs" "-L/cuda/lib"\' >&2'
        test = 'if [ "$1" = --list-gpu-arch ]; then :'
        return make_script(tmp_path / name, [test, *arms, "else", libraries, "fi"])

    return with_architectures


def tensorflow(distribution):
    return TensorFlow("2.21.0", pathlib.Path("/nowhere"), distribution)


@pytest.mark.parametrize(
    ("distribution", "has_nvcc", "wish", "built"),
    [
        ("tensorflow", True, "", True),
        ("tf-nightly", True, "", True),
        ("tensorflow-cpu", True, "", False),
        ("tensorflow-rocm", True, "", False),
        ("tensorflow", False, "", False),
        ("tensorflow-cpu", True, "1", True),
        ("tensorflow", True, "0", False),
        ("tensorflow", False, "0", False),
    ],
)
def test_the_cuda_part_goes_by_nvcc_tensorflow_and_the_wish(
    install, monkeypatch, distribution, has_nvcc, wish, built
):
    if has_nvcc:
        install(*OF_CUDA_13)
    monkeypatch.setenv("LARGEOUT_CUDA", wish)
    assert (cuda.find_for(tensorflow(distribution), "g++") is not None) == built


@pytest.mark.parametrize("distribution", ["tensorflow", "tensorflow-cpu"])
def test_the_cuda_part_without_nvcc_is_an_error_that_says_how_to_get_it(
    install, monkeypatch, distribution
):
    monkeypatch.setenv("LARGEOUT_CUDA", "1")
    with pytest.raises(BuildError) as caught:
        cuda.find_for(tensorflow(distribution), "g++")
    for part in ["'nvcc', which is not on the PATH", "toolkit", "NVCC=", "LARGEOUT_CUDA=0"]:
        assert part in str(caught.value)


def test_a_wish_that_is_neither_yes_nor_no_is_an_error(install, monkeypatch):
    monkeypatch.setenv("LARGEOUT_CUDA", "maybe")
    with pytest.raises(BuildError, match="'maybe'; expected 1"):
        cuda.find_for(tensorflow("tensorflow"), "g++")


def test_the_environment_names_another_nvcc(install, monkeypatch):
    monkeypatch.setenv("NVCC", install(*OF_CUDA_12, name="nvcc-12"))
    assert cuda.find("g++").command.endswith("nvcc-12")


@pytest.mark.parametrize(
    ("offered", "taken"),
    [
        (OF_CUDA_12, (70, 75, 80, 86, 87, 89, 90)),
        (OF_CUDA_13, (75, 80, 86, 87, 88, 89, 90)),
    ],
)
def test_code_is_made_for_v100_to_h100_and_ptx_for_what_follows(install, offered, taken):
    install(*offered)
    command = cuda.find("g++").compile_command
    codes = [one for one in command if one.startswith("-gencode")]
    assert codes == [
        *(f"-gencode=arch=compute_{a},code=sm_{a}" for a in taken),
        "-gencode=arch=compute_90,code=compute_90",
    ]


def test_a_check_of_this_machine_is_compiled_for_its_gpus(install, tmp_path):
    install(*OF_CUDA_13)
    assert len(cuda.find("g++", local=True).architectures) == 7
    make_script(tmp_path / "nvidia-smi", ["echo 12.0", "echo 9.0", "echo 9.0"])
    assert cuda.find("g++", local=True).architectures == (90, 120)
    make_script(tmp_path / "nvidia-smi", ["echo 5.2"])
    assert len(cuda.find("g++", local=True).architectures) == 7


def test_an_nvcc_without_code_for_the_range_is_an_error(install):
    install(50, 61)
    with pytest.raises(BuildError, match=r"none of sm_70 to sm_90; it offers \[50, 61\]"):
        cuda.find("g++")


def test_the_runtime_is_linked_statically_from_where_nvcc_has_it(install):
    install(*OF_CUDA_13)
    flags = cuda.find("g++").link_flags
    assert flags == ["-L/cuda/lib", "-lcudart_static", "-lrt", "-ldl", "-lpthread"]


def test_launchers_are_made_of_the_cuda_floor_by_nvcc(install):
    install(*OF_CUDA_13)
    nvcc = cuda.find("g++")
    made = {one.source.name: one for one in parts.launchers(nvcc)}
    assert made["stream.cu"].command[0] == nvcc.command
    assert not [name for name in made if "check" in name]


def test_a_changed_header_makes_the_object_of_nvcc_stale(tmp_path):
    if cuda._command() is None:
        pytest.skip("no nvcc")
    header, source = tmp_path / "one.h", tmp_path / "one.cu"
    header.write_text("#define ONE 1\n")
    source.write_text('#include "one.h"\n__global__ void Write(int* to) { *to = ONE; }\n')
    nvcc = cuda.find("g++")
    command = (nvcc.command, *cuda.FLAGS, f"-arch=sm_{max(nvcc.architectures)}")
    one = Object(command, source, tmp_path / "build" / "cuda" / "one.o")
    objects.compile_all([one])
    assert objects.is_fresh(one)
    header.unlink()
    assert not objects.is_fresh(one)


@pytest.mark.slow
def test_a_library_with_the_cuda_part_loads_and_works_without_a_gpu(tmp_path, monkeypatch):
    if cuda._command() is None:
        pytest.skip("no nvcc")
    monkeypatch.setenv("LARGEOUT_CUDA", "1")
    library = tmp_path / "_largeout_ops.so"
    targets.build_op_library(library)
    assert b"RowUpdateGpuOp" in library.read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-n", "0", "tests/ops/row_ops_test.py"],
        cwd=targets.ROOT,
        env={**os.environ, "LARGEOUT_OPS_LIBRARY": str(library)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
