"""`atomic_file` and `atomic_path`: write a file that is complete or absent."""

import contextlib
import fcntl
import glob
import os
import time
import uuid
from collections.abc import Iterator
from typing import IO

_SUFFIX = ".unfinished"
_SECONDS_UNTIL_LOCKED = 60.0  # more than from the creation of a file to its lock


@contextlib.contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Context with a file that is renamed to `path` when it is complete.

    Readers see either the old file or the new file, also after a crash. After an error, the old
    file is unchanged. Several threads, processes and machines may write to one path. The file
    of the last writer to finish remains. The file is locked while it is written, so that later
    writers of `path` can remove the unfinished files of writers that were killed.

    Args:
        path: Path of the file. Its folder must exist.
    """
    folder, name = os.path.split(os.path.abspath(path))
    pattern = os.path.join(glob.escape(folder), f".{glob.escape(name)}.*{_SUFFIX}")
    for unfinished in glob.glob(pattern):
        _remove_unless_locked(unfinished)
    unfinished = os.path.join(folder, f".{name}.{uuid.uuid4().hex}{_SUFFIX}")
    with open(unfinished, "xb") as file, _renamed_at_end(unfinished, path):
        with contextlib.suppress(OSError):  # some file systems have no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file
        file.flush()


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[str]:
    """Context with another path, whose file is renamed to `path` when it is complete.

    It is for functions that take a path, such as Keras's `save`. The other path is
    `.unfinished.NAME` in the same folder. After an error, the old file is unchanged. After a
    kill, the unfinished file remains, and the next writer replaces it. Only one process at a
    time may write to `path`.

    Args:
        path: Path of the file. Its folder must exist.
    """
    folder, name = os.path.split(path)
    unfinished = os.path.join(folder, f".unfinished.{name}")
    with _renamed_at_end(unfinished, path):
        yield unfinished


@contextlib.contextmanager
def _renamed_at_end(unfinished: str, path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
        with open(unfinished, "rb") as file:
            os.fsync(file.fileno())  # some file systems report a full disk only here
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(unfinished)
        raise


def _remove_unless_locked(path: str) -> None:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if its writer is alive
        if time.time() - os.fstat(file.fileno()).st_mtime > _SECONDS_UNTIL_LOCKED:
            os.remove(path)
