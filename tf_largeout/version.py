"""The version of tf_largeout and the window of TensorFlow versions it accepts.

`setup.py` executes this file and `tf_largeout.ops.library` imports it: the
window stands here and nowhere else. The op library links against TensorFlow's
C++ symbols, which change with every minor release, so the window is one minor.
"""

__version__ = "0.1.0"

TENSORFLOW_MIN = "2.21.0"
TENSORFLOW_BELOW = "2.22.0"
