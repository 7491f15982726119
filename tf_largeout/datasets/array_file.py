"""Reads arrays from a `.npz` file that may be damaged."""

import io
import os
import zipfile
from typing import BinaryIO

import numpy as np

_SUFFIX = ".npy"


class DamagedFileError(Exception):
    """A file differs from what `np.savez` wrote."""


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Reads the arrays that `np.savez` wrote to `path`.

    Returns:
        Dict from names to arrays.

    Raises:
        DamagedFileError: If bytes are missing or wrong. It replaces the many different errors
            of the libraries that read a zip archive.
        OSError: If the file cannot be read.
        MemoryError: If the arrays do not fit in memory.
    """
    with open(path, "rb") as file:
        try:
            return _arrays(file)
        except (OSError, MemoryError):
            raise
        except Exception as error:
            raise DamagedFileError(f"{type(error).__name__}: {error}") from error


def _arrays(file: BinaryIO) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(file) as archive:
        return {
            member.filename.removesuffix(_SUFFIX): _array(archive, member)
            for member in archive.infolist()
        }


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Reads one array. `archive.read` verifies the checksum before the bytes are parsed."""
    if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
        raise zipfile.BadZipFile(f"{member.filename} is compressed.")
    content = io.BytesIO(archive.read(member))
    return np.lib.format.read_array(content, allow_pickle=False)
