"""Exchange of software versions between a process and the servers that it runs ops on."""

import os

import tensorflow as tf

from tf_largeout.ops.library import gen_ops
from tf_largeout.version import __version__

_NAME = "LARGEOUT_SERVER_VERSIONS"


def local_versions() -> str:
    """Returns the versions of this process, in the format of `server_versions`."""
    return f"tf_largeout {__version__} with TensorFlow {tf.__version__}"


def publish_versions(note: str = "") -> None:
    """Makes `server_versions` on the devices of this process return its versions and a note."""
    os.environ[_NAME] = f"{local_versions()}\n{note}" if note else local_versions()


def server_versions() -> tf.Tensor:
    """Returns the versions of the process that runs this op, placed there with `tf.device`.

    A scalar string such as "tf_largeout 0.1.0 with TensorFlow 2.21.0", and the note of the
    server on a second line. It is empty if the process is not a tf_largeout server.
    """
    return gen_ops.largeout_server_versions()
