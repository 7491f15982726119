"""Which trainer has a server: a file on the server's disk, which the trainer writes."""

import pathlib
import tempfile

import tensorflow as tf

from tf_largeout.ops import process_ops


def new_claim() -> pathlib.Path:
    """A path on this machine, the server's, that `claim` will write to from the trainer."""
    return pathlib.Path(tempfile.mkdtemp(prefix="largeout_server_")) / "trainer"


def say(path: pathlib.Path) -> None:
    """Tells trainers that ask this process for its versions where to put their claim."""
    process_ops.say_versions(str(path))


def claim(path: str, device: str, address: str, own_address: str) -> None:
    """Writes the address of this trainer on a server.

    Args:
        path: Where the server said that claims go to.
        device: Of the server, which this process is connected to.
        address: Of the server, for messages.
        own_address: At which this process listens.

    Raises:
        RuntimeError: If another trainer has the server.
    """
    with tf.device(device):
        if tf.io.matching_files(path).shape[0]:
            other = tf.io.read_file(path).numpy().decode().strip()
            raise RuntimeError(
                f"Server {address} has a trainer at {other}. A server is free again a second "
                "after its trainer ended: end that one, or take other servers."
            )
        tf.io.write_file(path, f"{own_address}\n")


def trainer(path: pathlib.Path) -> str | None:
    """The address that a trainer wrote; None before."""
    text = path.read_text() if path.exists() else ""
    return text.strip() if text.endswith("\n") else None
