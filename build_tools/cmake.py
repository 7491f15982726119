"""Builds targets of CMakeLists.txt with CMake and Ninja; says what is missing."""

import contextlib
import fcntl
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import TextIO

from build_tools import gpu, tensorflow_install
from build_tools.errors import BuildError
from build_tools.tensorflow_install import TensorFlow

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What CMake builds, by target; paths are relative to the folder of the preset.
OUTPUTS = {
    "op_library": "_largeout_ops.so",
    "emulated_gpu": "emulated_gpu/_largeout_ops.so",
    "serving_host": "serving_host",
    "core": "",
    "cc_tests": "cc_tests",
    "emulated_check": "custom_ops/emulated_gpu/emulated_check",
    "cuda_check": "cuda_check",
}
# pip sets one of these variables for a build backend; the second one before pip 24.1.
_RUN_BY_PIP = {"_PYPROJECT_HOOKS_BUILD_BACKEND", "PEP517_BUILD_BACKEND"}
NEED_TENSORFLOW = ("op_library", "emulated_gpu", "serving_host")


def build(
    target: str,
    preset: str = "release",
    *definitions: str,
    tensorflow: TensorFlow | None = None,
) -> pathlib.Path:
    """Builds one target of CMakeLists.txt and returns the path of its output.

    Args:
        target: a key of `OUTPUTS`.
        preset: a preset of CMakePresets.json: "release", "sanitize", "gpu" or "arm".
        definitions: further cache variables for CMake, such as "CMAKE_CUDA_ARCHITECTURES=90".
        tensorflow: the one to compile against. Default: that of this Python environment.

    Raises:
        BuildError: if CMake, Ninja or TensorFlow is missing, or a step fails.
    """
    cmake, ninja = _program("cmake"), _program("ninja")
    variables = [f"CMAKE_MAKE_PROGRAM={ninja}", *definitions]
    if target in NEED_TENSORFLOW:
        variables += _tensorflow_variables(tensorflow or tensorflow_install.find_supported())
    jobs = str(len(os.sched_getaffinity(0)))
    with _lock(preset):
        run([cmake, "--preset", preset, *(f"-D{one}" for one in variables)], "Configuring")
        run([cmake, "--build", "--preset", preset, "-j", jobs, "-t", target], "Compiling")
    return folder(preset) / OUTPUTS[target]


def build_op_library(output: pathlib.Path, preset: str | None = None) -> None:
    """Builds the op library and copies it to `output`; prints a notice about GPU kernels.

    Args:
        output: the path of the copy. A process that has loaded an older one keeps it.
        preset: see `build`. Default: "gpu" if the environment variable LARGEOUT_GPU is 1.

    Raises:
        BuildError: as `build`, and if LARGEOUT_GPU is neither 0, 1 nor unset.
    """
    preset = preset or ("gpu" if wants_gpu() else "release")
    # `make cuda-check` leaves the architecture of one GPU in CMake's cache.
    definitions = ["CMAKE_CUDA_ARCHITECTURES="] if preset == "gpu" else []
    built = build("op_library", preset, *definitions)
    output.parent.mkdir(parents=True, exist_ok=True)
    copy = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    shutil.copy2(built, copy)
    copy.replace(output)
    notice = gpu.notice(output)
    if notice:
        print(notice, file=sys.stderr)


def wants_gpu() -> bool:
    """Whether the environment asks for GPU kernels: LARGEOUT_GPU=1.

    Raises:
        BuildError: if LARGEOUT_GPU is neither 0, 1 nor unset.
    """
    value = os.environ.get("LARGEOUT_GPU", "")
    if value not in ("", "0", "1"):
        raise BuildError(
            f"LARGEOUT_GPU is {value!r}. Expected 1 (compile the GPU kernels, with nvcc), or 0 "
            "or nothing (leave them out)."
        )
    return value == "1"


def folder(preset: str = "release") -> pathlib.Path:
    """Returns the folder that a preset builds in."""
    return ROOT / "build" / preset


def run(command: list[str], what: str) -> None:
    """Runs a command in the root of the project.

    pip hides the output of a build, so its progress is also written to the terminal then.

    Raises:
        BuildError: if it fails.
    """
    with contextlib.ExitStack() as stack:
        terminal = None
        if not _RUN_BY_PIP.isdisjoint(os.environ):
            with contextlib.suppress(OSError):
                terminal = stack.enter_context(open("/dev/tty", "w"))
        status = _run_and_show(command, terminal)
    if status != 0:
        raise BuildError(
            f"{what} failed with exit status {status}; the messages above say why. "
            f"The command was: {shlex.join(command)}"
        )


def _run_and_show(command: list[str], terminal: TextIO | None) -> int:
    """Runs a command, shows Ninja's progress on a terminal, and returns the exit status."""
    if terminal is None:
        return subprocess.run(command, check=False, cwd=ROOT).returncode
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            found = re.match(r"\[(\d+)/(\d+)\] Building", line)
            if found:
                progress = f"\rtf_largeout: compiled {found[1]} of {found[2]} files "
                print(progress, end="", file=terminal, flush=True)
    return process.returncode


def _tensorflow_variables(found: TensorFlow) -> list[str]:
    return [
        f"LARGEOUT_TENSORFLOW={found.folder}",
        f"LARGEOUT_TENSORFLOW_VERSION={found.version}",
    ]


def _program(name: str) -> str:
    """Returns the path of a program, from this Python's environment or from the PATH."""
    own = shutil.which(name, path=str(pathlib.Path(sys.executable).parent))
    found = own or shutil.which(name)
    if found is None:
        raise BuildError(
            f"tf_largeout is built with CMake and Ninja, and {name!r} is not on the "
            f"PATH. Install both: {sys.executable} -m pip install cmake ninja"
        )
    return found


@contextlib.contextmanager
def _lock(preset: str) -> Iterator[None]:
    """Lets one process at a time build in the folder of a preset."""
    folder(preset).mkdir(parents=True, exist_ok=True)
    with open(folder(preset) / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
