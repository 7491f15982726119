"""`atomic_file`: writes a file that is complete or absent."""

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
    with open(unfinished, "xb") as file:
        try:
            with contextlib.suppress(OSError):  # some file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(unfinished, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.remove(unfinished)
            raise


def _remove_unless_locked(path: str) -> None:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if its writer is alive
        if time.time() - os.fstat(file.fileno()).st_mtime > _SECONDS_UNTIL_LOCKED:
            os.remove(path)
