"""Whether the op library is compiled. Without it, tf_largeout uses TensorFlow's own operations.

LARGEOUT_NATIVE in the environment decides: 1 requires the library, 0 leaves it out. Without the
variable, the library is compiled on Linux if there is a C++ compiler, and if the installed
TensorFlow is not newer than those it is tested with. Without TensorFlow, it is left out if jax
is installed, or if KERAS_BACKEND is jax. A failed build leaves it out.
"""

import contextlib
import os
import platform
import shutil
import sys

from build_tools import tensorflow_install
from build_tools.errors import BuildError

REQUIREMENTS = ["cmake>=3.22", "ninja"]
_COMPILERS = ("c++", "g++", "clang++")


def is_required() -> bool:
    """Returns whether LARGEOUT_NATIVE is 1, so that a failed build is an error.

    Raises:
        BuildError: If LARGEOUT_NATIVE is neither 0, 1 nor unset.
    """
    return is_one(
        "LARGEOUT_NATIVE",
        "1 (compile the op library, or fail), 0 (do not compile it) or unset (compile it if "
        "there is a C++ compiler)",
    )


def is_one(variable: str, expected: str) -> bool:
    """Returns whether a variable of the environment is 1.

    Raises:
        BuildError: If it is neither 0, 1 nor unset. The message states what is `expected`.
    """
    value = os.environ.get(variable, "")
    if value not in ("", "0", "1"):
        raise BuildError(f"{variable} is {value!r}. Expected {expected}.")
    return value == "1"


def why_not() -> str | None:
    """Returns why the op library is not compiled, or None if it is."""
    if is_required():
        return None
    if reason := why_never():
        return reason
    if reason := tensorflow_install.why_only_jax():
        return reason
    version = tensorflow_install.without_library()
    window = tensorflow_install.VERSION["LIBRARY_WINDOW"]
    return version and f"its op library is for TensorFlow {window}, not {version}"


def why_never() -> str | None:
    """Returns why the op library is not compiled for any TensorFlow, or None."""
    if is_required():
        return None
    if os.environ.get("LARGEOUT_NATIVE") == "0":
        return "LARGEOUT_NATIVE is 0"
    if platform.system() != "Linux":
        return f"its op library does not support {platform.system()}"
    compilers = [os.environ.get("CXX") or "", *_COMPILERS]
    if not any(shutil.which(compiler) for compiler in compilers if compiler):
        return "no C++ compiler is on the PATH"
    return None


def notice(reason: str) -> str:
    """Returns one line that says what an installation without the op library does."""
    return (
        f"tf_largeout is installed without its op library: {reason}. On TensorFlow, it uses "
        "TensorFlow's own operations, which are slower on CPUs."
    )


def announce(reason: str) -> None:
    """Prints the notice, also on the terminal, as pip hides the output of a build."""
    print(notice(reason), file=sys.stderr)
    if not sys.stderr.isatty():
        with contextlib.suppress(OSError), open("/dev/tty", "w", encoding="utf-8") as terminal:
            print(notice(reason), file=terminal)


if __name__ == "__main__":
    print(why_never() or "", end="")  # for the Makefile, whose TensorFlow is not installed yet
