"""What a process says of itself to others that run ops on it."""

import os

import tensorflow as tf

from tf_largeout.ops.library import gen_ops
from tf_largeout.version import __version__

_NAME = "LARGEOUT_SERVER_VERSIONS"


def own_versions() -> str:
    """The versions of this process, as `server_versions` gives those of a server."""
    return f"tf_largeout {__version__} with TensorFlow {tf.__version__}"


def say_versions(note: str = "") -> None:
    """Has `server_versions` give, from now on, those of this process on its devices.

    Args:
        note: A second line for whoever asks; none if empty.
    """
    os.environ[_NAME] = f"{own_versions()}\n{note}" if note else own_versions()


def server_versions() -> tf.Tensor:
    """What the process that runs this op says of its versions.

    Returns:
        Scalar string, and the note of `say_versions`, if any, after a line break; empty if it
        is no server of tf_largeout.
    """
    return gen_ops.largeout_server_versions()
