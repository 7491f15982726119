"""Downloads a Debian package, and reads it without dpkg and without unpacking it to disk.

A .deb file is an `ar` archive. One of its members is a tar archive of the files to install.
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


def download_command(package: str) -> tuple[str, ...]:
    """Returns the command that downloads a package, `name=version`, to the current folder."""
    return (
        *("apt-get", "-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=15"),
        *("-o", "Acquire::https::Timeout=15", "download", package),
    )


@contextlib.contextmanager
def installed_files(
    path: str | os.PathLike[str], title: str, what: str
) -> Iterator[tarfile.TarFile]:
    """Opens the tar archive of the files that a package installs, for sequential reading.

    Args:
        path: Path of the package.
        title: Title of the progress bar.
        what: Name of the content, for the error message.

    Raises:
        SourceFileError: Inside the `with` block, if the package is damaged or truncated.
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
            f"Expected {path} to be a complete Debian package of {what}. Reading it failed "
            f"with: {error!r}. Delete the file; the next run will download it again."
        ) from error


@contextlib.contextmanager
def tar_stream(file: object) -> Iterator[tarfile.TarFile]:
    """Opens a `.tar.xz` in a file that can only be read sequentially."""
    with lzma.open(cast(BinaryIO, file)) as content:
        with tarfile.open(fileobj=cast(IO[bytes], content), mode="r|") as archive:
            yield archive


def _seek_data_member(package: BinaryIO, path: str | os.PathLike[str]) -> None:
    """Moves to the content of the member `data.tar.xz` of an `ar` archive."""
    if package.read(len(_MAGIC)) != _MAGIC:
        raise SourceFileError(
            f"Expected {path} to be an `ar` archive, but its first bytes are different."
        )
    while header := package.read(_HEADER_BYTES):
        if len(header) < _HEADER_BYTES:
            raise EOFError("The `ar` archive is truncated.")
        name, num_bytes = header[:16].decode("ascii").strip().rstrip("/"), int(header[48:58])
        if name == "data.tar.xz":
            return
        package.seek(num_bytes + num_bytes % 2, io.SEEK_CUR)
    raise SourceFileError(f"Expected a member data.tar.xz in {path}, but there is none.")


class _ReadProgress:
    """A file that shows a progress bar while it is read."""

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
