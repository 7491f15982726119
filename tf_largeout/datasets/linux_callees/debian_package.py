"""Streams the C files out of Debian's package of the kernel source.

A .deb is an `ar` archive, one member of which is a tar archive of the files to install; here
one of those is again a tar archive, of the source tree. Nothing is unpacked to disk.
"""

import contextlib
import io
import lzma
import os
import tarfile

from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.progress import tqdm

_MAGIC = b"!<arch>\n"
_HEADER_BYTES = 60


def c_files(path):
    """The `.c` files of the source tree in a `linux-source-*.deb`.

    Symbolic links are left out: their files come under their own paths.

    Yields:
        `(path below the top of the source tree, content as bytes)`.

    Raises:
        SourceFileError: the file is damaged or truncated, or no such package.
    """
    try:
        yield from _c_files(path)
    except (OSError, EOFError, ValueError, lzma.LZMAError, tarfile.TarError) as error:
        if isinstance(error, SourceFileError):
            raise
        raise SourceFileError(
            f"Expected {path} to be a whole Debian package of the kernel source; reading it "
            f"failed with: {error!r}. Delete the file and it is fetched again."
        ) from error


def _c_files(path):
    num_files = 0
    with open(path, "rb") as package, _ReadProgress(package, "Parsing C files") as reader:
        _seek_data_member(package, path)
        with _tar_stream(reader) as outer:
            for member in outer:
                if os.path.basename(member.name).startswith("linux-source-"):
                    if member.isfile() and member.name.endswith(".tar.xz"):
                        with _tar_stream(outer.extractfile(member)) as tree:
                            for name, content in _c_members(tree):
                                num_files += 1
                                yield name, content
    if not num_files:
        raise SourceFileError(f"Expected a linux-source-*.tar.xz with .c files in {path}.")


def _seek_data_member(package, path):
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


@contextlib.contextmanager
def _tar_stream(file):
    with lzma.open(file) as content, tarfile.open(fileobj=content, mode="r|") as archive:
        yield archive


def _c_members(tree):
    for member in tree:
        if member.isfile() and member.name.endswith(".c"):
            _, _, below_top = member.name.removeprefix("./").partition("/")
            yield below_top, tree.extractfile(member).read()


class _ReadProgress:
    """A file whose reading moves a progress bar."""

    def __init__(self, file, title):
        self._file = file
        total = os.fstat(file.fileno()).st_size
        self._bar = tqdm(total=total, desc=title, unit="B", unit_scale=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._bar.close()

    def read(self, size=-1):
        content = self._file.read(size)
        self._bar.update(len(content))
        return content
