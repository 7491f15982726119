"""Packages of Debian and npm: their downloads, and the files in a Debian package.

A .deb file is read without dpkg and without unpacking it to disk. It is an `ar` archive. One of
its members is a tar archive of the files to install.
"""

import contextlib
import dataclasses
import hashlib
import io
import lzma
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from typing import IO, BinaryIO, cast

from tqdm.utils import CallbackIOWrapper

from tf_largeout.datasets.sources import SourceFileError, progress

_MAGIC = b"!<arch>\n"
_HEADER_BYTES = 60
_APT = ("apt-get", "-o", "Acquire::Retries=1", "download")
# With the default, npm would try for 70 seconds on a machine without network access.
_NPM = ("npm", "pack", "--loglevel=error", "--fetch-retries=1", "--fetch-retry-mintimeout=1000")


@dataclasses.dataclass(frozen=True)
class Package:
    """A package that a program downloads.

    Attributes:
        name: Name of the file.
        sha256: Checksum of the file, hexadecimal.
        command: Program and arguments that download the file to the working directory.
        origin: Where the package is from.
    """

    name: str
    sha256: str
    command: tuple[str, ...]
    origin: str

    @property
    def by_hand(self) -> str:
        """How to get the file by hand."""
        return (
            f"It is a package of {self.origin}. Download it with `{' '.join(self.command)}`, "
            f"and copy it to the folder for manual downloads (sha256 {self.sha256})."
        )

    def ensure(self, folder: pathlib.Path) -> pathlib.Path:
        """Returns the path of the file in `folder`. Downloads it if it is missing.

        Raises:
            SourceFileError: If the file cannot be downloaded, or has another checksum.
        """
        path = folder / self.name
        try:
            if not path.exists():
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryDirectory(dir=folder) as part:
                    if self.command[0] == "apt-get" and os.geteuid() == 0:
                        # When run by root, apt-get downloads as the user _apt, if it exists.
                        with contextlib.suppress(LookupError):
                            shutil.chown(part, "_apt")
                    print(f"Downloading {self.name}")
                    subprocess.run(self.command, cwd=part, check=True)
                    os.replace(os.path.join(part, self.name), path)
            found = hashlib.sha256(path.read_bytes()).hexdigest()
        except (OSError, subprocess.CalledProcessError) as error:
            raise SourceFileError(f"{path} is missing: {error}. {self.by_hand}") from error
        if found != self.sha256:
            raise SourceFileError(f"{path} is damaged: delete it. {self.by_hand}")
        return path


def debian_package(name: str, version: str, sha256: str) -> Package:
    """Returns a package of Debian 12."""
    command = (*_APT, f"{name}={version}")
    return Package(f"{name}_{version}_all.deb", sha256, command, "Debian 12")


def npm_package(name: str, version: str, sha256: str) -> Package:
    """Returns a package of npm."""
    command = (*_NPM, f"{name}@{version}")
    return Package(f"{name}-{version}.tgz", sha256, command, "the npm registry")


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
        with (
            open(path, "rb") as package,
            progress(total=os.path.getsize(path), desc=title, unit="B", unit_scale=True) as bar,
        ):
            _seek_data_member(package, path)
            with tar_stream(CallbackIOWrapper(bar.update, package)) as archive:
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
