"""`atomic_file` and `atomic_path`: write a file that is complete or absent."""

import contextlib
import glob
import os
import time
import uuid
from collections.abc import Iterator
from typing import IO

_SUFFIX = ".unfinished"
_SECONDS_BETWEEN_WRITES = 24 * 3600.0  # at most, of a writer that is alive


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Context with a file that is renamed to `path` when it is complete. Its folder must exist.

    Readers see either the old file or the new file, also after a crash. After an error, the old
    file is unchanged. Several threads, processes and machines may write to one path. The file
    of the last writer to finish remains. Unfinished files of `path` that nobody has written to
    for a day are removed: their writers were killed.
    """
    folder, name = os.path.split(os.path.abspath(path))
    pattern = os.path.join(glob.escape(folder), f".{glob.escape(name)}.*{_SUFFIX}")
    for unfinished in glob.glob(pattern):
        with contextlib.suppress(OSError):
            if time.time() - os.stat(unfinished).st_mtime > _SECONDS_BETWEEN_WRITES:
                os.remove(unfinished)
    unfinished = os.path.join(folder, f".{name}.{uuid.uuid4().hex}{_SUFFIX}")
    # Windows renames only files that are closed.
    with _renamed_at_end(unfinished, path), open(unfinished, "xb") as file:
        yield file


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[str]:
    """Context with another path, whose file is renamed to `path` when it is complete.

    It is for functions that take a path, such as Keras's `save`. The other path is
    `.unfinished.NAME` in the same folder. After an error, the old file is unchanged. After a
    kill, the unfinished file remains, and the next writer replaces it. Only one process at a
    time may write to `path`.
    """
    folder, name = os.path.split(path)
    unfinished = os.path.join(folder, f".unfinished.{name}")
    with _renamed_at_end(unfinished, path):
        yield unfinished


@contextlib.contextmanager
def _renamed_at_end(unfinished: str, path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
        with open(unfinished, "r+b") as file:  # Windows needs write access for fsync
            os.fsync(file.fileno())  # some file systems report a full disk only here
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(unfinished)
        raise
