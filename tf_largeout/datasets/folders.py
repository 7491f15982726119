"""The folders that tfds uses."""

import os
import pathlib


def downloads_folder(data_dir=None):
    """`data_dir/downloads`, tfds's place for source files.

    Args:
        data_dir: where datasets live. Default, as in tfds: the environment variable
            `TFDS_DATA_DIR`, or else `~/tensorflow_datasets`.
    """
    data_dir = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return pathlib.Path(data_dir).expanduser() / "downloads"


def cache_folder(downloads):
    """Where parsed corpora are kept."""
    return pathlib.Path(downloads) / "parsed"
