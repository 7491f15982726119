"""Finds the TensorFlow that the op library is compiled against.

The op library works only with the minor version of TensorFlow that it was compiled against, so
it must be compiled against the one in the same environment. pip's build isolation hides that
TensorFlow from `sys.path`, but `sysconfig` still returns the site-packages folder of the
environment. TensorFlow is looked up there by its metadata, without importing it.
"""

import dataclasses
import importlib.metadata
import os
import pathlib
import runpy
import site
import sys
import sysconfig

from build_tools.errors import BuildError

ROOT = pathlib.Path(__file__).resolve().parent.parent
VERSION = runpy.run_path(str(ROOT / "tf_largeout" / "version.py"))
VERSIONS = VERSION["TENSORFLOW_VERSIONS"]
REQUIREMENT = f"{VERSION['CPU_PACKAGE']}{VERSIONS}"
GPU_REQUIREMENT = f"tensorflow{VERSIONS}"

_DISTRIBUTIONS = (
    "tensorflow",
    "tensorflow-cpu",
    "tensorflow-rocm",
    "tf-nightly",
    "tf-nightly-cpu",
)
_GPU_DISTRIBUTIONS = ("tensorflow", "tf-nightly")
_FRAMEWORK = "libtensorflow_framework.so.2"


@dataclasses.dataclass(frozen=True)
class TensorFlow:
    """An installed TensorFlow: its version, its package folder, and its name for pip."""

    version: str
    folder: pathlib.Path
    distribution: str

    @property
    def can_use_gpu(self) -> bool:
        """Whether it supports CUDA GPUs."""
        return self.distribution in _GPU_DISTRIBUTIONS

    @property
    def compile_flags(self) -> list[str]:
        """The flags of `tf.sysconfig.get_compile_flags()`, and the version."""
        return [
            f"-I{self.folder / 'include'}",
            "-D_GLIBCXX_USE_CXX11_ABI=1",
            "--std=c++17",
            "-DEIGEN_MAX_ALIGN_BYTES=64",
            f"-DLARGEOUT_TENSORFLOW_VERSION={self.version}",
        ]

    @property
    def link_flags(self) -> list[str]:
        """The flags of `tf.sysconfig.get_link_flags()`."""
        return [f"-L{self.folder}", f"-l:{_FRAMEWORK}"]


def find(folders: list[str] | None = None) -> TensorFlow | None:
    """Returns the first TensorFlow in `folders`, or None.

    Args:
        folders: site-packages folders to search. Defaults to those of this Python, followed by
            the packages of an isolated build.
    """
    for folder in _search_path() if folders is None else folders:
        for name in _DISTRIBUTIONS:
            for found in importlib.metadata.distributions(name=name, path=[folder]):
                package = pathlib.Path(str(found.locate_file("tensorflow")))
                if (package / _FRAMEWORK).exists() and (package / "include").is_dir():
                    return TensorFlow(found.version, package, name)
    return None


def find_supported(folders: list[str] | None = None) -> TensorFlow:
    """Returns the TensorFlow to compile against.

    Raises:
        BuildError: If there is none, or its version is too old.
    """
    found = find(folders)
    if found is None:
        raise BuildError(
            "The ops of tf_largeout are compiled against an installed TensorFlow, but none "
            f"was found in {_site_folders()}. Supported: tensorflow{VERSIONS}. "
            f'Install it first: pip install "{REQUIREMENT}"'
        )
    if not VERSION["accepts_tensorflow"](found.version):
        raise BuildError(
            f"Installed: TensorFlow {found.version} (in {found.folder}). Supported by "
            f"tf_largeout {VERSION['__version__']}: tensorflow{VERSIONS}. Install a supported "
            f'TensorFlow (pip install "{REQUIREMENT}", or "tensorflow[and-cuda]{VERSIONS}" for '
            "GPUs), install the release of tf_largeout that supports yours, or build in a new "
            "virtual environment."
        )
    return found


def without_library(folders: list[str] | None = None) -> str | None:
    """Returns the version of an installed TensorFlow for which no op library is tested."""
    found = find(folders)
    return None if found is None or VERSION["has_library"](found.version) else found.version


def why_only_jax() -> str | None:
    """Returns why this environment seems to be for Keras's JAX backend only, or None."""
    if find() is not None:
        return None
    if os.environ.get("KERAS_BACKEND") == "jax":
        return "KERAS_BACKEND is jax, and TensorFlow is not installed"
    has_jax = any(importlib.metadata.distributions(name="jax", path=_search_path()))
    return "jax is installed, and TensorFlow is not" if has_jax else None


def _search_path() -> list[str]:
    return _site_folders() + sys.path


def _site_folders() -> list[str]:
    """Returns the folders of this Python's packages, in the order of the search."""
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    in_base = sys.prefix == sys.base_prefix
    if in_base and site.ENABLE_USER_SITE is not None:
        folders.insert(0, site.getusersitepackages())
    if in_base or _sees_base_packages():
        base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
        folders += [sysconfig.get_path(path, vars=base) for path in ("purelib", "platlib")]
        folders += [f"{sys.base_prefix}/lib/python3/dist-packages"]
    return list(dict.fromkeys(folders))


def _sees_base_packages() -> bool:
    config = pathlib.Path(sys.prefix, "pyvenv.cfg")
    lines = config.read_text().lower().splitlines() if config.exists() else []
    return any(line.replace(" ", "") == "include-system-site-packages=true" for line in lines)


if __name__ == "__main__":
    print(REQUIREMENT)
