"""Builds targets of CMakeLists.txt with CMake and Ninja."""

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

# Output of each target, relative to the folder of the preset.
OUTPUTS = {
    "op_library": "_largeout_ops.so",
    "emulated_gpu": "emulated_gpu/_largeout_ops.so",
    "serving_host": "serving_host",
    "core": "",
    "cc_tests": "cc_tests",
    "emulated_check": "custom_ops/emulated_gpu/emulated_check",
    "cuda_check": "cuda_check",
}
# pip sets one of these variables for a build backend: before version 24.1 the second one.
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
        target: A key of `OUTPUTS`.
        preset: A preset of CMakePresets.json, such as "release" or "sanitize".
        definitions: Further cache variables for CMake, such as "CMAKE_CUDA_ARCHITECTURES=90".
        tensorflow: TensorFlow to compile against. Defaults to that of this Python environment.

    Raises:
        BuildError: If CMake, Ninja or TensorFlow is missing, or a step fails.
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
    """Builds the op library and copies it to `output`. May print a notice about CUDA kernels.

    Args:
        output: Path of the copy. A process that has loaded an older copy is not affected.
        preset: See `build`. Defaults to "cuda" if the environment variable LARGEOUT_CUDA is 1,
            else to "release".

    Raises:
        BuildError: If the build fails, or LARGEOUT_CUDA is neither 0, 1 nor unset.
    """
    preset = preset or ("cuda" if gpu.is_wanted() else "release")
    # CMake's cache may hold the architecture of a single GPU.
    definitions = ["CMAKE_CUDA_ARCHITECTURES="] if preset == "cuda" else []
    built = build("op_library", preset, *definitions)
    output.parent.mkdir(parents=True, exist_ok=True)
    copy = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    shutil.copy2(built, copy)
    copy.replace(output)
    notice = gpu.notice(output)
    if notice:
        print(notice, file=sys.stderr)


def folder(preset: str = "release") -> pathlib.Path:
    """Returns the folder that a preset builds in."""
    return ROOT / "build" / preset


def run(command: list[str], what: str, folder: pathlib.Path = ROOT) -> None:
    """Runs a command in a folder, by default the root folder of the project.

    As pip hides the output of a build, the progress is then also written to the terminal.

    Raises:
        BuildError: If the command fails.
    """
    with contextlib.ExitStack() as stack:
        terminal = None
        if not _RUN_BY_PIP.isdisjoint(os.environ):
            with contextlib.suppress(OSError):
                terminal = stack.enter_context(open("/dev/tty", "w"))
        status = _run_and_show(command, folder, terminal)
    if status != 0:
        raise BuildError(
            f"{what} failed with exit status {status}. See the messages above. "
            f"The command was: {shlex.join(command)}"
        )


def _run_and_show(command: list[str], folder: pathlib.Path, terminal: TextIO | None) -> int:
    """Runs a command, shows Ninja's progress on a terminal, and returns the exit status."""
    if terminal is None:
        return subprocess.run(command, check=False, cwd=folder).returncode
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
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
    in_environment = shutil.which(name, path=str(pathlib.Path(sys.executable).parent))
    found = in_environment or shutil.which(name)
    if found is None:
        raise BuildError(
            f"tf_largeout is built with CMake and Ninja, but {name!r} is not on the "
            f"PATH. Install both: {sys.executable} -m pip install cmake ninja"
        )
    return found


@contextlib.contextmanager
def _lock(preset: str) -> Iterator[None]:
    """Ensures that only one process at a time builds in the folder of a preset."""
    folder(preset).mkdir(parents=True, exist_ok=True)
    with open(folder(preset) / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
