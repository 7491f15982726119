"""Trains the example of README.md, with few classes, on an emulated 64-bit ARM machine.

`python -m build_tools.arm_python` unpacks Debian 12's Python and TensorFlow's wheel for ARM in
build/arm_python, without installing them, and runs them under qemu, with stock operations.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

from build_tools import cmake
from build_tools.errors import BuildError
from build_tools.tensorflow_install import ROOT, VERSION

EMULATOR = "qemu-aarch64-static"
DEBIAN = (
    "libbz2-1.0 libc6 libexpat1 libffi8 libgcc-s1 liblzma5 libpython3.11-minimal "
    "libpython3.11-stdlib libsqlite3-0 libssl3 libstdc++6 libuuid1 python3.11-minimal zlib1g"
).split()
PLATFORMS = ("2_17", "2_26", "2_27", "2_28", "2_34")  # of glibc; Debian 12 has 2.36
# 5,000 classes: an emulator is slow.
FEWER = {
    "100_000": "5_000",
    "402_000": "22_000",
    "(4096)": "(512)",
    "batch_size=512, epochs=2": "batch_size=128, epochs=3",
}
CHECK = """
import platform
from tf_largeout.ops import library
print(platform.machine(), library.OPS, tflo.__version__, result)
assert platform.machine() == "aarch64" and library.OPS == "stock"
assert result["precision_at_1"] > 0.8
"""


def example() -> str:
    """Returns the program: the example with fewer classes, and a check of its precision."""
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)[0]
    for old, new in FEWER.items():
        if old not in code:
            raise BuildError(f"The example of README.md has no {old!r}: adapt {__file__}.")
        code = code.replace(old, new)
    return code + CHECK


def prepare(folder: pathlib.Path) -> None:
    """Unpacks Python, TensorFlow and what they need, if the folder does not have them."""
    if (folder / "site").exists():
        return
    for part in ("debs", "wheels", "unpacked"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    packages = [f"{name}:arm64" for name in DEBIAN]
    done = subprocess.run(["apt-get", "download", "-q", *packages], cwd=folder / "debs")
    if done.returncode or not shutil.which(EMULATOR):
        raise BuildError(
            "Packages are missing. As root: dpkg --add-architecture arm64 && apt-get update && "
            "apt-get install qemu-user-static"
        )
    for package in (folder / "debs").glob("*.deb"):
        cmake.run(["dpkg", "-x", str(package), str(folder / "root")], package.name)
    wanted = [f"tensorflow{VERSION['LIBRARY_WINDOW']}", "keras>=3.12,<4"]
    options = ["--only-binary=:all:", "--python-version=3.11", f"--dest={folder / 'wheels'}"]
    options += [f"--platform=manylinux_{one}_aarch64" for one in PLATFORMS]
    options += ["--platform=manylinux2014_aarch64"]
    command = [sys.executable, "-m", "pip", "download", "-q", *options, *wanted]
    cmake.run(command, "Downloading TensorFlow for ARM")
    for wheel in (folder / "wheels").glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(folder / "unpacked")
    (folder / "unpacked").rename(folder / "site")


def run(folder: pathlib.Path) -> int:
    """Runs the example under emulation and returns its exit status."""
    root = folder / "root"
    libraries = [f"{root}{one}/aarch64-linux-gnu" for one in ("/lib", "/usr/lib")]
    environment = {
        "LD_LIBRARY_PATH": ":".join(libraries),
        "PYTHONHOME": f"{root}/usr",
        "PYTHONPATH": f"{ROOT}:{folder / 'site'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LARGEOUT_OPS": "stock",
    }
    command = [EMULATOR, "-L", str(root)]
    for name, value in environment.items():
        command += ["-E", f"{name}={value}"]
    command += [f"{root}/usr/bin/python3.11", "-c", example()]
    return subprocess.run(command, cwd=folder).returncode


def main() -> int:
    """Prepares and runs; returns the exit status."""
    folder = cmake.folder("arm_python").absolute()
    try:
        prepare(folder)
        return run(folder)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
