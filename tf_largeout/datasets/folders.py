"""The folders of a dataset."""

import dataclasses
import os
import pathlib
from typing import Any


@dataclasses.dataclass(frozen=True)
class Folders:
    """Where sources and parsed sources are.

    Attributes:
        manual: source files, fetched or put there by hand (tfds's `manual_dir`).
        parsed: what was parsed from them.
    """

    manual: pathlib.Path
    parsed: pathlib.Path

    @classmethod
    def of_data_dir(cls, data_dir: str | os.PathLike[str] | None = None) -> "Folders":
        """The folders tfds has for a `data_dir`.

        Args:
            data_dir: where datasets live. Default, as in tfds: the environment variable
                `TFDS_DATA_DIR`, or else `~/tensorflow_datasets`.

        Raises:
            ValueError: it is not the path of a local folder.
        """
        if data_dir is None:
            data_dir = os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
        return cls.of_downloads(_local(data_dir) / "downloads")

    @classmethod
    def of_downloads(cls, downloads: str | os.PathLike[str]) -> "Folders":
        """The folders below tfds's `download_dir`."""
        downloads = pathlib.Path(downloads)
        return cls(manual=downloads / "manual", parsed=downloads / "parsed")

    @classmethod
    def of_download_manager(cls, dl_manager: Any) -> "Folders":
        """The folders of a tfds `DownloadManager`."""
        folders = cls.of_downloads(_local(dl_manager.download_dir))
        try:
            return dataclasses.replace(folders, manual=pathlib.Path(dl_manager.manual_dir))
        except AssertionError:
            return folders  # tfds refuses to name an empty folder, one to fetch into.


def _local(data_dir: str | os.PathLike[str]) -> pathlib.Path:
    """The path `data_dir` with its `~` expanded; a ValueError if it is none."""
    try:
        path = os.fspath(data_dir)
        if isinstance(path, str) and path and "\0" not in path and "://" not in path:
            return pathlib.Path(path).expanduser()
    except (TypeError, RuntimeError):
        pass  # No path; or there is no such user, or none at all.
    raise ValueError(
        "`data_dir` must be the path of a local folder, or None for that of the environment "
        "variable TFDS_DATA_DIR, or else ~/tensorflow_datasets. "
        f"Received: data_dir={data_dir!r} (of type {type(data_dir).__name__})."
    )
