"""The folders of a dataset."""

import dataclasses
import os
import pathlib
from typing import Any


@dataclasses.dataclass(frozen=True)
class Folders:
    """The folders of source files and of parsed sources.

    Attributes:
        manual: Source files, downloaded or copied there by hand (tfds's `manual_dir`).
        parsed: Parsed sources.
    """

    manual: pathlib.Path
    parsed: pathlib.Path

    @classmethod
    def of_data_dir(cls, data_dir: str | os.PathLike[str] | None = None) -> "Folders":
        """Returns the folders that tfds uses for a `data_dir`.

        Args:
            data_dir: Folder of the datasets. The default is as in tfds: the value of the
                environment variable `TFDS_DATA_DIR`, or else `~/tensorflow_datasets`.

        Raises:
            ValueError: If `data_dir` is not the path of a local folder.
        """
        if data_dir is None:
            data_dir = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
        return cls.of_downloads(_local(data_dir) / "downloads")

    @classmethod
    def of_downloads(cls, downloads: str | os.PathLike[str]) -> "Folders":
        """Returns the folders in tfds's `download_dir`."""
        downloads = pathlib.Path(downloads)
        return cls(manual=downloads / "manual", parsed=downloads / "parsed")

    @classmethod
    def of_download_manager(cls, dl_manager: Any) -> "Folders":
        """Returns the folders of a tfds `DownloadManager`."""
        folders = cls.of_downloads(_local(dl_manager.download_dir))
        try:
            return dataclasses.replace(folders, manual=pathlib.Path(dl_manager.manual_dir))
        except AssertionError:
            return folders  # tfds raises an error if the folder is empty, as before a download.


def _local(data_dir: str | os.PathLike[str]) -> pathlib.Path:
    """Returns the path `data_dir` with `~` expanded, or raises a ValueError."""
    try:
        path = os.fspath(data_dir)
        if isinstance(path, str) and path and "\0" not in path and "://" not in path:
            return pathlib.Path(path).expanduser()
    except (TypeError, RuntimeError):
        pass  # It is not a path, or `~` cannot be expanded.
    raise ValueError(
        "`data_dir` must be the path of a local folder, or None for the value of the "
        "environment variable TFDS_DATA_DIR or else ~/tensorflow_datasets. "
        f"Received: data_dir={data_dir!r} (of type {type(data_dir).__name__})."
    )
