"""Parsed sources on disk: one file each, complete or absent."""

import logging
import os
import pathlib
import tempfile
import zipfile

import numpy as np

_log = logging.getLogger(__name__)


def cached(path, kind, parse):
    """The object stored at `path`; made by `parse()` and stored there if it is not.

    The file is written beside `path` and renamed when it is complete, so that a run that is
    killed leaves nothing that a later one could take for a cache. Each array carries a
    checksum; a damaged file is parsed anew.

    Args:
        path: where the object is, or will be; parent directories are made.
        kind: its class, which has `to_arrays()` and `from_arrays(arrays)`.
        parse: function without arguments that returns it.
    """
    path = pathlib.Path(path)
    if path.exists():
        try:
            return _read(path, kind)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            _log.warning("The cache %s is damaged (%s) and is made anew.", path, error)
    parsed = parse()
    _write(path, parsed.to_arrays())
    return parsed


def _read(path, kind):
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return kind.from_arrays({name: arrays[name] for name in arrays.files})


def _write(path, arrays):
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **arrays)
        os.chmod(part, 0o644)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise
