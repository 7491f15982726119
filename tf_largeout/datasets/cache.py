"""Cache of parsed sources on disk, one file for each."""

import logging
import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from tf_largeout.atomic_file import atomic_file
from tf_largeout.datasets.array_file import DamagedFileError, read_arrays
from tf_largeout.datasets.storable import Storable

_Kind = TypeVar("_Kind", bound=Storable)
_log = logging.getLogger(__name__)


def cached(
    path: str | os.PathLike[str], kind: type[_Kind], parse: Callable[[], _Kind]
) -> _Kind:
    """Returns the object stored at `path`, or calls `parse()` and stores its result there.

    The file is written under a temporary name and renamed when it is complete, so that a killed
    run never leaves an incomplete cache. Each array has a checksum; if the file is damaged, the
    source is parsed again. If the file cannot be written, a warning says so before `parse()` is
    called, and the result is returned without being stored.

    Args:
        path: Path of the stored object. Missing parent folders are created.
        kind: Class of the object, a `Storable`.
        parse: Function without arguments that returns the object.
    """
    path = pathlib.Path(path)
    stored = _stored(path, kind)
    if stored is not None:
        return stored
    writable = _try("will not be stored", path, lambda: _check_writable(path))
    parsed = parse()
    if writable:
        _try("was not stored", path, lambda: _write(path, parsed.to_arrays()))
    return parsed


def _stored(path: pathlib.Path, kind: type[_Kind]) -> _Kind | None:
    """Reads the object at `path`. Returns None if the file is missing or damaged."""
    try:
        return kind.from_arrays(read_arrays(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (DamagedFileError, KeyError, OSError) as error:
        _log.warning("The cache %s is damaged (%s). The source is parsed again.", path, error)
        return None


def _try(outcome: str, path: pathlib.Path, write: Callable[[], Any]) -> bool:
    """Calls `write()`, and warns if it fails. Returns whether it succeeded."""
    try:
        write()
    except OSError as error:
        _log.warning(
            "The parsed dataset %s because %s cannot be written: %s. The next run will parse "
            "it again. Set `data_dir`, or the environment variable TFDS_DATA_DIR, to a "
            "writable folder with enough space.",
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
