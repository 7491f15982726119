"""Reads a Debian package without dpkg, and without unpacking anything to disk.

A .deb is an `ar` archive, one member of which is a tar archive of the files to install.
"""

import contextlib
import io
import lzma
import os
import tarfile
import zlib
from collections.abc import Iterator
from types import TracebackType
from typing import IO, BinaryIO, cast

from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.progress import tqdm

_MAGIC = b"!<arch>\n"
_HEADER_BYTES = 60


@contextlib.contextmanager
def installed_files(
    path: str | os.PathLike[str], title: str, what: str
) -> Iterator[tarfile.TarFile]:
    """The tar archive of the files that a package installs, to be read from front to back.

    Args:
        path: of the package.
        title: of the progress bar.
        what: the package, for the error message.

    Raises:
        SourceFileError: inside the `with`, where the package is damaged or truncated.
    """
    try:
        with open(path, "rb") as package, _ReadProgress(package, title) as reader:
            _seek_data_member(package, path)
            with tar_stream(reader) as archive:
                yield archive
    except (
        OSError,
        EOFError,
        ValueError,
        zlib.error,
        lzma.LZMAError,
        tarfile.TarError,
    ) as error:
        if isinstance(error, SourceFileError):
            raise
        raise SourceFileError(
            f"Expected {path} to be a whole Debian package of {what}; reading it failed with: "
            f"{error!r}. Delete the file and it is fetched again."
        ) from error


@contextlib.contextmanager
def tar_stream(file: object) -> Iterator[tarfile.TarFile]:
    """A `.tar.xz` in a file that can only be read from front to back."""
    with lzma.open(cast(BinaryIO, file)) as content:
        with tarfile.open(fileobj=cast(IO[bytes], content), mode="r|") as archive:
            yield archive


def _seek_data_member(package: BinaryIO, path: str | os.PathLike[str]) -> None:
    """Moves to the content of the member `data.tar.xz` of an `ar` archive."""
    if package.read(len(_MAGIC)) != _MAGIC:
        raise SourceFileError(f"Expected {path} to begin as an `ar` archive; it does not.")
    while header := package.read(_HEADER_BYTES):
        if len(header) < _HEADER_BYTES:
            raise EOFError("The `ar` archive is cut off.")
        name, num_bytes = header[:16].decode("ascii").strip().rstrip("/"), int(header[48:58])
        if name == "data.tar.xz":
            return
        package.seek(num_bytes + num_bytes % 2, io.SEEK_CUR)
    raise SourceFileError(f"Expected a member data.tar.xz in {path}; there is none.")


class _ReadProgress:
    """A file whose reading moves a progress bar."""

    def __init__(self, file: BinaryIO, title: str) -> None:
        self._file = file
        total = os.fstat(file.fileno()).st_size
        self._bar = tqdm(total=total, desc=title, unit="B", unit_scale=True)

    def __enter__(self) -> "_ReadProgress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.close()

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size)
        self._bar.update(len(content))
        return content
