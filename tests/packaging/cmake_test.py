"""Options of the build with CMake, and its errors."""

import io
import json
import os
import subprocess

import pytest
import tensorflow as tf

from build_tools import cmake, gpu
from build_tools.errors import BuildError
from tests import compiler
from tests.source_tree import ROOT


def configure(folder, *arguments, **environment):
    """Configures a new build in `folder`, and returns CMake's output in one line."""
    compiler.require()
    command = ["-G", "Ninja", "-S", ROOT, "-B", folder, *arguments]
    done = subprocess.run(
        [cmake._program("cmake"), *map(str, command)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def make_script(path, *lines):
    path.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.slow
def test_a_second_build_compiles_nothing(capfd):
    cmake.build("op_library")
    capfd.readouterr()
    library = cmake.build("op_library")
    assert "no work to do" in capfd.readouterr().out
    assert library.exists()


def test_kernels_are_compiled_with_tensorflows_flags():
    compiler.require()
    file = cmake.build("op_library").parent / "compile_commands.json"
    commands = [one["command"] for one in json.loads(file.read_text())]
    kernels = [one for one in commands if "CMakeFiles/kernels.dir" in one]
    assert kernels
    for flag in tf.sysconfig.get_compile_flags():
        flag = flag.replace("--std", "-std").removeprefix("-I")  # CMake writes -isystem.
        assert all(flag in command for command in kernels), flag
    assert all(f"LARGEOUT_TENSORFLOW_VERSION={tf.__version__}" in one for one in kernels)


@pytest.mark.parametrize("name", ["cmake", "ninja"])
def test_a_missing_program_is_an_error_with_instructions(monkeypatch, name):
    monkeypatch.setattr(cmake.shutil, "which", lambda *_, **__: None)
    with pytest.raises(BuildError, match=f"{name!r} is not on the PATH.*pip install cmake"):
        cmake._program(name)


def test_under_pip_the_progress_is_written_to_the_terminal(capfd):
    terminal = io.StringIO()
    script = "echo '[1/2] Building CXX object a.o'; echo 'a.cc: warning'; exit 4"
    assert cmake._run_and_show(["sh", "-c", script], cmake.ROOT, terminal) == 4
    assert terminal.getvalue() == "\rtf_largeout: compiled 1 of 2 files "
    assert capfd.readouterr().out == "[1/2] Building CXX object a.o\na.cc: warning\n"


def test_a_source_that_does_not_compile_is_an_error_that_names_the_command():
    with pytest.raises(BuildError, match="Compiling failed with exit status 3.*exit 3"):
        cmake.run(["sh", "-c", "exit 3"], "Compiling")


@pytest.mark.parametrize(("value", "wanted"), [("", False), ("0", False), ("1", True)])
def test_cuda_kernels_are_compiled_only_on_request(monkeypatch, value, wanted):
    monkeypatch.setenv("LARGEOUT_CUDA", value)
    assert gpu.is_wanted() == wanted


def test_an_invalid_value_of_largeout_cuda_is_an_error(monkeypatch):
    monkeypatch.setenv("LARGEOUT_CUDA", "maybe")
    with pytest.raises(BuildError, match="'maybe'. Expected 1"):
        gpu.is_wanted()


def test_a_compiler_too_old_for_cpp17_is_an_error_that_names_its_version(tmp_path):
    script = make_script(tmp_path / "g++-old", 'exec g++ -U__GNUC__ -D__GNUC__=7 "$@"')
    status, printed = configure(tmp_path / "build", CXX=script)
    assert status != 0
    for part in ["tf_largeout needs g++ 9 or newer", "is GNU 7", "apt-get install g++", "CXX"]:
        assert part in printed


@pytest.mark.parametrize(
    ("offered", "taken"),
    [
        ((50, 60, 70, 75, 80, 86, 87, 89, 90), "70 75 80 86 87 89 90"),
        ((75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120), "75 80 86 87 88 89 90"),
    ],
)
def test_code_is_compiled_for_gpus_from_v100_to_h100(tmp_path, offered, taken):
    assert architectures(tmp_path, offered) == (0, taken)


def test_an_nvcc_without_code_for_these_gpus_is_an_error(tmp_path):
    status, printed = architectures(tmp_path, (50, 61))
    assert status != 0
    assert "compiles for 50;61; tf_largeout needs one of 70 to 90" in printed


def architectures(folder, offered):
    """Returns the choice of custom_ops/cuda/architectures.cmake for an nvcc."""
    nvcc = make_script(folder / "nvcc", *(f"echo compute_{one}" for one in offered))
    script = folder / "choose.cmake"
    script.write_text(
        f"set(LARGEOUT_NVCC {nvcc})\ninclude({ROOT}/custom_ops/cuda/architectures.cmake)\n"
        'string(REPLACE ";" " " text "${LARGEOUT_GPU_ARCHITECTURES}")\nmessage("${text}")\n'
    )
    done = subprocess.run(
        [cmake._program("cmake"), "-P", str(script)], capture_output=True, text=True
    )
    return done.returncode, " ".join(done.stderr.split())


def test_cuda_kernels_without_nvcc_are_an_error_with_instructions(tmp_path):
    status, printed = configure(tmp_path / "build", "-DLARGEOUT_CUDA=ON", NVCC="nvcc-99")
    assert status != 0
    for part in ["needs 'nvcc-99', which is not on the PATH", "toolkit", "LARGEOUT_CUDA=0"]:
        assert part in printed
