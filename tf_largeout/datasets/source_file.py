"""Downloads and checks the source files of datasets, which have fixed checksums."""

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from tf_largeout.datasets.errors import SourceFileError
from tf_largeout.datasets.progress import tqdm

_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A source file of a dataset.

    Attributes:
        name: File name, as published.
        num_bytes: Size of the file.
        sha256: Checksum of the file, hexadecimal.
        command: Program and arguments that download the file to the working directory. The
            program may be missing; then `ensure` raises an error that says so.
        by_hand: How to get the file by hand; a sentence for the error messages.
    """

    name: str
    num_bytes: int
    sha256: str
    command: tuple[str, ...]
    by_hand: str

    def ensure(self, folder: str | os.PathLike[str]) -> pathlib.Path:
        """Downloads the file to `folder` if it is missing, checks it, and returns its path.

        Raises:
            SourceFileError: If the size or checksum of the file is wrong, if it cannot be read
                or downloaded, or if the folder cannot be written.
        """
        folder = pathlib.Path(folder)
        path = folder / self.name
        try:
            if not path.exists():
                self._fetch(folder)
            self.check(path)
        except OSError as error:
            raise SourceFileError(
                f"{path} cannot be read or downloaded: {error}. Set `data_dir`, or the "
                "environment variable TFDS_DATA_DIR, to a writable folder with "
                f"{self.num_bytes:,} bytes of free space. {self._remedy(path)}"
            ) from error
        return path

    def check(self, path: str | os.PathLike[str]) -> None:
        """Raises a SourceFileError unless the file has the expected size and sha256."""
        path = pathlib.Path(path)
        if not path.is_file():
            raise SourceFileError(f"{path} is missing. {self._remedy(path)}")
        num_bytes = path.stat().st_size
        if num_bytes != self.num_bytes:
            what = "truncated" if num_bytes < self.num_bytes else "a different file"
            raise SourceFileError(
                f"{path} is {what}: expected {self.num_bytes:,} bytes, found {num_bytes:,}. "
                f"{self._remedy(path)}"
            )
        found = _sha256(path)
        if found != self.sha256:
            raise SourceFileError(
                f"{path} is damaged: expected sha256 {self.sha256}, found {found}. "
                f"{self._remedy(path)}"
            )

    def _fetch(self, folder: pathlib.Path) -> None:
        """Runs the download command in a new folder that no other user can write to."""
        folder.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.mkdtemp(dir=folder, prefix=f".{self.name}.", suffix=".part")
        part = pathlib.Path(temporary)
        try:
            if self.command[0] == "apt-get" and os.geteuid() == 0:
                # When run by root, apt-get downloads as the user _apt, if it exists.
                with contextlib.suppress(LookupError):
                    shutil.chown(part, "_apt")
            self._run(part, folder / self.name)
            self.check(part / self.name)
            os.replace(part / self.name, folder / self.name)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _run(self, part: pathlib.Path, target: pathlib.Path) -> None:
        if shutil.which(self.command[0]) is None:
            raise SourceFileError(
                f"{self.name} cannot be downloaded, because {self.command[0]!r} is not "
                f"installed. {self._remedy(target)}"
            )
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                self.command,
                cwd=part,
                env=os.environ | {"TMPDIR": str(part)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                _show_growth(process, part, self.name, self.num_bytes)
            finally:
                process.kill()
                process.wait()
            output.seek(0)
            log = output.read().decode("utf-8", "replace").strip()
        if process.returncode != 0 or not (part / self.name).is_file():
            raise SourceFileError(
                f"{self.name} could not be downloaded: `{' '.join(self.command)}` ended with "
                f"status {process.returncode} and the output:\n{log[-2000:]}\n"
                f"Without network access: {self._remedy(target)} `data_dir`, or the "
                "environment variable TFDS_DATA_DIR, can also name a folder that has the "
                "datasets."
            )

    def _remedy(self, path: pathlib.Path) -> str:
        return (
            f"{self.by_hand} Copy the file to {path} (sha256 {self.sha256}). If a wrong file "
            "is there, delete it; the next run will download it again."
        )


def _sha256(path: pathlib.Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(_CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def _show_growth(
    process: subprocess.Popen[bytes], folder: pathlib.Path, title: str, total: int
) -> None:
    """Shows the progress of a process that writes `total` bytes to files in `folder`."""
    with tqdm(total=total, desc=f"Downloading {title}", unit="B", unit_scale=True) as bar:
        has_ended = False
        while not has_ended:
            time.sleep(0.1)
            has_ended = process.poll() is not None
            if num_new := min(_bytes_under(folder), total) - bar.n:
                bar.update(num_new)  # `update(0)` would print the same line again


def _bytes_under(folder: pathlib.Path) -> int:
    num_bytes = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                num_bytes += os.stat(os.path.join(root, name)).st_size
            except OSError:
                pass  # A temporary file may have been renamed or removed meanwhile.
    return num_bytes
