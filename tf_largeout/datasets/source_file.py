"""Pinned source files: found, fetched and checked."""

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
    """One file that a dataset is made from.

    Attributes:
        name: file name, as its publisher gives it.
        num_bytes: its size.
        sha256: its checksum, hexadecimal.
        command: program and arguments that bring the file into the working directory; the
            program's first word may be missing on a machine, which is reported.
        by_hand: a sentence for the error messages: how a person gets the file.
    """

    name: str
    num_bytes: int
    sha256: str
    command: tuple[str, ...]
    by_hand: str

    def ensure(self, folder: str | os.PathLike[str]) -> pathlib.Path:
        """Path of the checked file in `folder`, where it is fetched to if it is not there.

        Raises:
            SourceFileError: a file is there and is another one or cannot be read, or it could
                not be fetched, or the folder cannot be written.
        """
        folder = pathlib.Path(folder)
        path = folder / self.name
        try:
            if not path.exists():
                self._fetch(folder)
            self.check(path)
        except OSError as error:
            raise SourceFileError(
                f"{path} cannot be read, or fetched to there: {error}. Point `data_dir`, or "
                "the environment variable TFDS_DATA_DIR, at a folder that can be written and "
                f"has {self.num_bytes:,} bytes of room. {self._way_out(path)}"
            ) from error
        return path

    def check(self, path: str | os.PathLike[str]) -> None:
        """Raises SourceFileError unless the file at `path` has the pinned size and sha256."""
        path = pathlib.Path(path)
        if not path.is_file():
            raise SourceFileError(f"{path} is missing. {self._way_out(path)}")
        num_bytes = path.stat().st_size
        if num_bytes != self.num_bytes:
            what = "truncated" if num_bytes < self.num_bytes else "another file"
            raise SourceFileError(
                f"{path} is {what}: expected {self.num_bytes:,} bytes, found {num_bytes:,}. "
                f"{self._way_out(path)}"
            )
        found = _sha256(path)
        if found != self.sha256:
            raise SourceFileError(
                f"{path} is damaged: expected sha256 {self.sha256}, found {found}. "
                f"{self._way_out(path)}"
            )

    def _fetch(self, folder: pathlib.Path) -> None:
        """Runs the command in a new folder that no other user can write to."""
        folder.mkdir(parents=True, exist_ok=True)
        temporary = tempfile.mkdtemp(dir=folder, prefix=f".{self.name}.", suffix=".part")
        part = pathlib.Path(temporary)
        try:
            if self.command[0] == "apt-get" and os.geteuid() == 0:
                # For root, apt-get fetches as the user _apt, if the system has it.
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
                f"{self.name} cannot be fetched: there is no {self.command[0]!r} on this "
                f"machine. {self._way_out(target)}"
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
            said = output.read().decode("utf-8", "replace").strip()
        if process.returncode != 0 or not (part / self.name).is_file():
            raise SourceFileError(
                f"{self.name} could not be fetched: `{' '.join(self.command)}` ended with "
                f"status {process.returncode} and said:\n{said[-2000:]}\n"
                f"{self._way_out(target)}"
            )

    def _way_out(self, path: pathlib.Path) -> str:
        return (
            f"{self.by_hand} Put the file at {path} (sha256 {self.sha256}); if a wrong file is "
            f"there, delete it and it is fetched again."
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
    """Progress of a process that writes `total` bytes somewhere under `folder`."""
    with tqdm(total=total, desc=f"Fetching {title}", unit="B", unit_scale=True) as bar:
        while process.poll() is None:
            time.sleep(0.1)
            bar.update(min(_bytes_under(folder), total) - bar.n)
        bar.update(min(_bytes_under(folder), total) - bar.n)


def _bytes_under(folder: pathlib.Path) -> int:
    num_bytes = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                num_bytes += os.stat(os.path.join(root, name)).st_size
            except OSError:
                pass  # A temporary file that has just been renamed or removed.
    return num_bytes
