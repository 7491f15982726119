"""Source files of datasets: folders, downloads, errors, and progress while they are read."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import keras


class SourceFileError(ValueError):
    """A source file is missing, damaged, or not of the expected version."""


@contextlib.contextmanager
def needed_by_datasets() -> Iterator[None]:
    """Within this context, the ImportError of a missing package says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        raise ImportError(
            f"The datasets need the package {package}, which is not installed. To install all "
            'packages that they need, run: pip install "tf_largeout[examples]"',
            name=package,
        ) from error


def progress(*arguments: Any, **options: Any) -> Any:
    """Returns a progress bar; the arguments are those of `tqdm.tqdm`."""
    with needed_by_datasets():
        from tqdm import tqdm
    return tqdm(*arguments, **options)


@dataclasses.dataclass(frozen=True)
class Folders:
    """The folders of a dataset: sources (tfds's `manual_dir`), and parsed sources."""

    manual: pathlib.Path
    parsed: pathlib.Path

    @classmethod
    def of_data_dir(cls, data_dir: str | os.PathLike[str] | None = None) -> "Folders":
        """Returns the folders that tfds uses for a `data_dir`, with its default."""
        if data_dir is None:
            data_dir = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
        return cls.of_downloads(local_folder(data_dir) / "downloads")

    @classmethod
    def of_downloads(cls, downloads: pathlib.Path) -> "Folders":
        """Returns the folders in tfds's `download_dir`."""
        return cls(manual=downloads / "manual", parsed=downloads / "parsed")


def local_folder(data_dir: Any) -> pathlib.Path:
    """Returns the path `data_dir` with `~` expanded, or raises a ValueError."""
    with contextlib.suppress(TypeError, RuntimeError):  # not a path, or an unknown `~`
        path = os.fspath(data_dir)
        if isinstance(path, str) and path and "\0" not in path and "://" not in path:
            return pathlib.Path(path).expanduser()
    raise ValueError(
        "`data_dir` must be the path of a local folder, or None for the value of the "
        "environment variable TFDS_DATA_DIR or else ~/tensorflow_datasets. "
        f"Received: data_dir={data_dir!r} (of type {type(data_dir).__name__})."
    )


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A file that `keras.utils.get_file` downloads; its address ends with its name."""

    url: str
    sha256: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def by_hand(self) -> str:
        return f"Download {self.url} (sha256 {self.sha256})."

    def ensure(self, folder: pathlib.Path) -> pathlib.Path:
        """Returns the path of the file in `folder`, where it is downloaded if necessary."""
        path = folder.absolute() / self.name
        try:
            keras.utils.get_file(
                self.name, self.url, cache_subdir=str(path.parent), file_hash=self.sha256
            )
        except Exception as error:  # Keras raises this class for all failures of the network.
            raise SourceFileError(
                f"{path} is missing or damaged, and could not be downloaded: {error} "
                f"{self.by_hand} Copy it to that path. Or set `data_dir`, or the environment "
                "variable TFDS_DATA_DIR, to a folder that has the datasets or is writable."
            ) from error
        return path
