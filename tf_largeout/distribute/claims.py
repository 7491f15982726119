"""The claim of a server: a file on its disk, to which a trainer writes its address."""

import pathlib
import tempfile

import tensorflow as tf

from tf_largeout.ops import process_ops


def new_claim() -> pathlib.Path:
    """Returns a path on this server, to which a trainer writes its address by `claim`."""
    return pathlib.Path(tempfile.mkdtemp(prefix="largeout_server_")) / "trainer"


def announce(path: pathlib.Path) -> None:
    """Makes this server send the path to trainers, together with its versions."""
    process_ops.publish_versions(str(path))


def claim(path: str, device: str, address: str, own_address: str) -> None:
    """Writes the address of this trainer on a server.

    Args:
        path: The path that the server announced.
        device: Device of the server, to which this process is connected.
        address: Address of the server, for messages.
        own_address: Address at which this process listens.

    Raises:
        RuntimeError: If another trainer uses the server.
    """
    with tf.device(device):
        if tf.io.matching_files(path).shape[0]:
            other = tf.io.read_file(path).numpy().decode().strip()
            raise RuntimeError(
                f"Server {address} is used by the trainer at {other}. Stop that trainer; the "
                "server is then free within a second. Or use other servers."
            )
        tf.io.write_file(path, f"{own_address}\n")


def trainer(path: pathlib.Path) -> str | None:
    """Returns the address that a trainer wrote, or None if there is none yet."""
    text = path.read_text() if path.exists() else ""
    return text.strip() if text.endswith("\n") else None
