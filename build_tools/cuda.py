"""The CUDA part: whether it is built, for which GPUs, by which commands.

It is built where nvcc is found and the installed TensorFlow can use a GPU. The
environment decides otherwise by LARGEOUT_CUDA, 1 or 0.
"""

import dataclasses
import os
import re
import shutil
import subprocess

from build_tools.errors import BuildError
from build_tools.tensorflow_install import TensorFlow

# Compute capabilities with code of their own: V100 to H100. Later GPUs translate
# the PTX of the newest when the library is loaded.
OLDEST_ARCHITECTURE, NEWEST_ARCHITECTURE = 70, 90

FLAGS = ["-std=c++17", "-O3", "--expt-relaxed-constexpr", "-Xcompiler", "-Wall,-fPIC"]
# The second: nvcc 12 warns that its later releases will not know sm_70.
FLAGS += ["-Werror", "all-warnings", "-Wno-deprecated-gpu-targets"]
ADVICE = (
    "Install NVIDIA's CUDA toolkit 12 or 13 (https://developer.nvidia.com/cuda-downloads; "
    "Debian and Ubuntu: apt-get install nvidia-cuda-toolkit), or name its compiler: "
    "NVCC=/path/to/nvcc"
)


@dataclasses.dataclass(frozen=True)
class Nvcc:
    """A CUDA compiler, with g++ for the host code."""

    command: str
    cxx: str
    architectures: tuple[int, ...]

    @property
    def compile_command(self) -> tuple[str, ...]:
        """The command up to the include paths."""
        codes = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in self.architectures]
        newest = max(self.architectures)
        codes.append(f"-gencode=arch=compute_{newest},code=compute_{newest}")
        return (self.command, "-ccbin", self.cxx, *FLAGS, *codes)

    @property
    def link_flags(self) -> list[str]:
        """The CUDA runtime, statically: a machine without CUDA loads the library too."""
        command = [self.command, "--dryrun", "-x", "cu", os.devnull, "-o", os.devnull]
        told = subprocess.run(command, capture_output=True, text=True).stderr
        lines = [line for line in told.splitlines() if "LIBRARIES=" in line]
        folders = re.findall(r'"-L([^"]+)"', " ".join(lines))
        search = [f"-L{folder}" for folder in folders if not folder.endswith("/stubs")]
        return [*search, "-lcudart_static", "-lrt", "-ldl", "-lpthread"]


def find_for(tensorflow: TensorFlow, cxx: str) -> Nvcc | None:
    """Returns the CUDA compiler if the op library gets its CUDA part, else None.

    Raises:
        BuildError: if LARGEOUT_CUDA is 1 and there is no nvcc, or is neither 0 nor 1.
    """
    wish = os.environ.get("LARGEOUT_CUDA", "")
    if wish not in ("", "0", "1"):
        raise BuildError(
            f"LARGEOUT_CUDA is {wish!r}; expected 1 (build the CUDA part), 0 (leave it out), "
            "or nothing (build it where nvcc is found and TensorFlow can use a GPU)."
        )
    if wish == "0" or (wish == "" and not (tensorflow.can_use_gpu and _command())):
        return None
    return find(cxx)


def find(cxx: str, local: bool = False) -> Nvcc:
    """Returns the CUDA compiler: nvcc, or what the environment variable NVCC names.

    Args:
        cxx: the compiler of the host code.
        local: for the GPUs of this machine alone, where they can be asked.

    Raises:
        BuildError: if there is none, or it makes no code for a GPU of the range.
    """
    command = _command()
    if command is None:
        name = os.environ.get("NVCC") or "nvcc"
        raise BuildError(
            f"The CUDA part of tf_largeout needs {name!r}, which is not on the PATH. {ADVICE}, "
            "or leave the part out: LARGEOUT_CUDA=0"
        )
    offered = _offered(command)
    found = [a for a in offered if OLDEST_ARCHITECTURE <= a <= NEWEST_ARCHITECTURE]
    if local:
        found = [a for a in _of_this_machine() if a in offered] or found
    if not found:
        raise BuildError(
            f"{command!r} makes code for none of sm_{OLDEST_ARCHITECTURE} to "
            f"sm_{NEWEST_ARCHITECTURE}; it offers {offered or 'nothing'}. {ADVICE}"
        )
    return Nvcc(command, cxx, tuple(found))


def _command() -> str | None:
    return shutil.which(os.environ.get("NVCC") or "nvcc")


def _offered(command: str) -> list[int]:
    listed = subprocess.run([command, "--list-gpu-arch"], capture_output=True, text=True)
    return sorted(int(number) for number in re.findall(r"compute_(\d+)\s", listed.stdout))


def _of_this_machine() -> list[int]:
    """The compute capabilities of the GPUs here: 90 for 9.0."""
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    if shutil.which(command[0]) is None:
        return []
    listed = subprocess.run(command, capture_output=True, text=True)
    found = re.findall(r"^(\d+)\.(\d)\s*$", listed.stdout, re.MULTILINE)
    return sorted({int(major + minor) for major, minor in found})
