"""Arrays in a `.npz` file that may be damaged."""

import io
import os
import zipfile
from typing import BinaryIO

import numpy as np

_SUFFIX = ".npy"


class DamagedFileError(Exception):
    """A file is not what `np.savez` wrote."""


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Name -> array of what `np.savez` wrote to `path`.

    Raises:
        DamagedFileError: some bytes are missing or are others. The libraries that read a zip
            archive raise one error for each field that has a value they cannot take; all of
            them mean this.
        OSError: the file cannot be read at all.
        MemoryError: the arrays do not fit.
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
    """An array whose bytes have passed their checksum before anything looks at them."""
    if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
        raise zipfile.BadZipFile(f"{member.filename} is compressed.")
    content = io.BytesIO(archive.read(member))
    return np.lib.format.read_array(content, allow_pickle=False)
