"""Finds the compilers and the flags of each kind of source."""

import os
import platform
import re
import shutil
import subprocess
import sys

from build_tools.errors import BuildError

OLDEST_GXX = 9

# One object of each X_simd.cc a level. Everything else is compiled for the
# baseline of the processor family, so that the library starts anywhere.
X86_LEVELS = {
    "generic": [],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": [
        "-mavx512f",
        "-mavx512bw",
        "-mavx512dq",
        "-mavx512vl",
        "-mavx512vnni",
        "-mfma",
    ],
}
WARNINGS = ["-Wall", "-Wno-sign-compare", "-Wno-deprecated-declarations"]
WARNINGS += ["-Wno-interference-size"]
CXX_FLAGS = ["-std=c++17", "-O3", "-fPIC", "-ffp-contract=fast", *WARNINGS]

# vptr needs type information that TensorFlow's libraries do not export.
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize=vptr"]
SANITIZE += ["-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-O1", "-g"]
# With these checks g++ refuses comparisons with nullptr in constant expressions of
# TensorFlow's headers; AddressSanitizer finds null pointers too.
SANITIZE_WITH_TENSORFLOW = ["-fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute"]


def simd_levels(machine: str | None = None) -> dict[str, list[str]]:
    """Returns the SIMD levels of `machine` (default: this one) and their flags."""
    if (machine or platform.machine()).lower() in ("x86_64", "amd64"):
        return X86_LEVELS
    return {"generic": X86_LEVELS["generic"]}


def find_cxx() -> str:
    """Returns g++, or what the environment variable CXX names.

    Raises:
        BuildError: if it is missing or too old for C++17.
    """
    if not sys.platform.startswith("linux"):
        raise BuildError(
            f"tf_largeout builds on Linux; this is {sys.platform}. On Windows use WSL 2, on "
            "macOS a Linux container."
        )
    command = os.environ.get("CXX") or "g++"
    advice = (
        f"Install g++ {OLDEST_GXX} or newer (Debian and Ubuntu: apt-get install g++; Fedora: "
        "dnf install gcc-c++), or name another one: CXX=/path/to/g++"
    )
    if shutil.which(command) is None:
        raise BuildError(f"The ops of tf_largeout need a C++ compiler, and {command!r} is not "
                         f"on the PATH. {advice}")  # fmt: skip
    version = _gnuc(command)
    if version < OLDEST_GXX:
        raise BuildError(
            f"The ops of tf_largeout are C++17, and {command!r} is version {version}. {advice}"
        )
    return command


def _gnuc(command: str) -> int:
    """The major version that the compiler itself reports; 0 if it does not."""
    macros = subprocess.run(
        [command, "-dM", "-E", "-x", "c++", "-"], input="", capture_output=True, text=True
    )
    found = re.search(r"#define __GNUC__ (\d+)", macros.stdout)
    return int(found.group(1)) if found else 0
