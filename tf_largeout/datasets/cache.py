"""Parsed sources on disk: one file each, complete or absent."""

import logging
import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np

from tf_largeout.atomic_file import atomic_file
from tf_largeout.datasets.array_file import DamagedFileError, read_arrays

_Kind = TypeVar("_Kind", bound="Storable")
_log = logging.getLogger(__name__)


class Storable(Protocol):
    """What can be kept as named arrays."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Name -> array."""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Any:
        """The object of the arrays; a KeyError where one is missing."""


def cached(
    path: str | os.PathLike[str], kind: type[_Kind], parse: Callable[[], _Kind]
) -> _Kind:
    """The object stored at `path`; made by `parse()` and stored there if it is not.

    The file is written beside `path` and renamed when it is complete, so that a run that is
    killed leaves nothing that a later one could take for a cache. Each array carries a
    checksum; a damaged file is parsed anew. Where nothing can be written, a warning before
    `parse()` says so, and what is parsed is returned all the same.

    Args:
        path: where the object is, or will be; parent directories are made.
        kind: its class, a `Storable`.
        parse: function without arguments that returns it.
    """
    path = pathlib.Path(path)
    stored = _stored(path, kind)
    if stored is not None:
        return stored
    writable = _try("will not be kept", path, lambda: _check_writable(path))
    parsed = parse()
    if writable:
        _try("was not kept", path, lambda: _write(path, parsed.to_arrays()))
    return parsed


def _stored(path: pathlib.Path, kind: type[_Kind]) -> _Kind | None:
    """The object in the file at `path`; None where there is no such file, or a damaged one."""
    try:
        return kind.from_arrays(read_arrays(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (DamagedFileError, KeyError, OSError) as error:
        _log.warning("The cache %s is damaged (%s) and is made anew.", path, error)
        return None


def _try(outcome: str, path: pathlib.Path, write: Callable[[], Any]) -> bool:
    """Whether `write()` succeeds. Where it does not, a warning says the way out."""
    try:
        write()
    except OSError as error:
        _log.warning(
            "What is parsed %s and the next run parses it again, because %s cannot be "
            "written: %s. Point `data_dir`, or the environment variable TFDS_DATA_DIR, at a "
            "folder that can be written and has room.",
            outcome,
            path,
            error,
        )
        return False
    return True


def _check_writable(path: pathlib.Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path.parent):
        pass


def _write(path: pathlib.Path, arrays: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        np.savez(file, **arrays)
