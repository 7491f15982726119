"""The version of tf_largeout and the TensorFlow versions that it supports.

Only this file states the versions. The build (`build_tools`, `setup.py`) executes it, and
`tf_largeout.ops.library` imports it. The op library links against TensorFlow's C++ symbols,
which change with every minor release, so it is compiled once per minor version. With any newer
TensorFlow, tf_largeout uses TensorFlow's own operations.
"""

import platform
import re

__version__ = "0.1.0"

TENSORFLOW_VERSIONS = ">=2.18.0"
# Those that the op library is compiled and tested for.
TENSORFLOW_MINORS = ("2.18", "2.19", "2.20", "2.21")
LIBRARY_WINDOW = ">=2.18.0,<2.22.0"
# TensorFlow's package without GPU support. It exists for x86 only.
CPU_PACKAGE = "tensorflow-cpu" if platform.machine() in ("x86_64", "AMD64") else "tensorflow"


def accepts_tensorflow(version: str) -> bool:
    """Returns whether TensorFlow `version` (a string such as "2.21.0") is supported."""
    return _numbers(version) >= _numbers(TENSORFLOW_MINORS[0])


def has_library(version: str) -> bool:
    """Returns whether the op library supports TensorFlow `version`."""
    return minor_of(version) in TENSORFLOW_MINORS


def minor_of(version: str) -> str:
    """Returns the first two numbers of a version, such as "2.21" for "2.21.0-rc1"."""
    return ".".join(re.findall(r"\d+", version)[:2])


def library_name(version: str | None = None) -> str:
    """Returns the file name of the op library in an installation from source.

    Args:
        version: A TensorFlow version. If given, returns the name of its op library in a wheel.
    """
    suffix = f"_{minor_of(version).replace('.', '_')}" if version else ""
    return f"_largeout_ops{suffix}.so"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in minor_of(version).split(".")]
