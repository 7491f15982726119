"""The version of tf_largeout and the window of TensorFlow versions it accepts.

The build (`build_tools`, `setup.py`) executes this file and
`tf_largeout.ops.library` imports it: the window stands here and nowhere else.
The op library links against TensorFlow's C++ symbols, which change with every
minor release, so the window is one minor.
"""

import re

__version__ = "0.1.0"

TENSORFLOW_MIN = "2.21.0"
TENSORFLOW_BELOW = "2.22.0"
TENSORFLOW_WINDOW = f">={TENSORFLOW_MIN},<{TENSORFLOW_BELOW}"


def accepts_tensorflow(version: str) -> bool:
    """Whether TensorFlow `version` (a string such as "2.21.0") is in the window."""
    return _release(TENSORFLOW_MIN) <= _release(version) < _release(TENSORFLOW_BELOW)


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
