"""Downloads TensorFlow's headers and main library, which the op library is compiled against.

They come from the wheel of a TensorFlow version. Nothing is installed, so one Python can
compile for all versions, and for other processors.
"""

import dataclasses
import pathlib
import sys
import tempfile
import zipfile

from build_tools import cmake, tensorflow_install
from build_tools.tensorflow_install import TensorFlow

FOLDER = cmake.ROOT / "build" / "tensorflow"

_PYTHON = "3.11"  # All supported versions of TensorFlow have a wheel for it.
_NEEDED = ("tensorflow/include/", "tensorflow/libtensorflow_framework.so.2")


@dataclasses.dataclass(frozen=True)
class Package:
    """TensorFlow's wheels for a processor architecture: their name for pip, and their tags."""

    distribution: str
    platforms: tuple[str, ...]


# Each has the tag of the wheels up to 2.20, and the tag from 2.21.
PACKAGES = {
    "x86_64": Package("tensorflow-cpu", ("manylinux2014_x86_64", "manylinux_2_27_x86_64")),
    "aarch64": Package("tensorflow", ("manylinux2014_aarch64", "manylinux_2_27_aarch64")),
}


def download(minor: str, machine: str = "x86_64") -> TensorFlow:
    """Returns the headers and the library of a minor version of TensorFlow.

    They are stored in the folder `build/tensorflow`.

    Args:
        minor: A minor version, such as "2.21". Its newest release is downloaded.
        machine: A key of `PACKAGES`.

    Raises:
        BuildError: If pip finds no wheel.
    """
    folder = FOLDER / machine / minor
    if tensorflow_install.find([str(folder)]) is None:
        with tempfile.TemporaryDirectory() as downloads:
            command = _pip_command(PACKAGES[machine], minor, downloads)
            cmake.run(command, f"Downloading TensorFlow {minor} for {machine}")
            _unpack(next(pathlib.Path(downloads).glob("*.whl")), folder)
    return tensorflow_install.find_supported([str(folder)])


def _pip_command(package: Package, minor: str, folder: str) -> list[str]:
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary=:all:", "--python-version", _PYTHON]
    command += [f"--platform={one}" for one in package.platforms]
    return [*command, "--dest", folder, f"{package.distribution}=={minor}.*"]


def _unpack(wheel: pathlib.Path, folder: pathlib.Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(folder, [name for name in names if name.startswith(_NEEDED)])
        # Metadata last, because `find` regards a folder with metadata as complete.
        archive.extractall(folder, [name for name in names if ".dist-info/" in name])
