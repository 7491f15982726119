"""Parsed corpora on disk: one file each, complete or absent."""

import logging
import os
import pathlib
import tempfile
import zipfile

import numpy as np

from tf_largeout.datasets.corpus import Corpus

_log = logging.getLogger(__name__)


def cached_corpus(path, parse):
    """The corpus stored at `path`; made by `parse()` and stored there if it is not.

    The file is written beside `path` and renamed when it is complete, so that a run that is
    killed leaves nothing that a later one could take for a cache. Each array carries a
    checksum; a damaged file is parsed anew.

    Args:
        path: where the corpus is, or will be; parent directories are made.
        parse: function without arguments that returns a `Corpus`.
    """
    path = pathlib.Path(path)
    if path.exists():
        try:
            return _read(path)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            _log.warning("The cache %s is damaged (%s) and is made anew.", path, error)
    corpus = parse()
    _write(path, corpus)
    return corpus


def _read(path):
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return Corpus.from_arrays({name: arrays[name] for name in arrays.files})


def _write(path, corpus):
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **corpus.to_arrays())
        os.chmod(part, 0o644)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise
