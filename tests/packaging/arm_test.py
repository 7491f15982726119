"""Tests of the build for 64-bit ARM."""

import json
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

from build_tools import cmake
from build_tools.tensorflow_install import VERSION
from tests.packaging.cmake_test import configure
from tests.source_tree import ROOT

TOOLCHAIN = "build_tools/aarch64.cmake"
COMPILER = "aarch64-linux-gnu-g++-12"
QEMU = "qemu-aarch64"
AARCH64 = 183  # In the ELF header.


def test_the_preset_has_the_toolchain_for_arm_and_its_own_folder():
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    preset = next(one for one in presets if one["name"] == "arm")
    assert preset["toolchainFile"] == f"${{sourceDir}}/{TOOLCHAIN}"
    folders = [one["binaryDir"] for one in presets]
    assert folders.count("${sourceDir}/build/arm") == 1


@pytest.mark.parametrize(
    ("processor", "levels"),
    [("aarch64", {"generic"}), ("x86_64", {"generic", "avx2", "avx512"})],
)
def test_arm_has_one_simd_level(tmp_path, processor, levels):
    target = ["-DCMAKE_SYSTEM_NAME=Linux", f"-DCMAKE_SYSTEM_PROCESSOR={processor}"]
    status, printed = configure(tmp_path, *target)
    assert status == 0, printed
    commands = json.loads((tmp_path / "compile_commands.json").read_text())
    flags = [flag for one in commands for flag in one["command"].split()]
    prefix = "-DLARGEOUT_SIMD="
    assert {flag.removeprefix(prefix) for flag in flags if flag.startswith(prefix)} == levels


def test_a_missing_compiler_is_an_error_with_instructions(tmp_path):
    found_nowhere = [
        "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF",
        f"-DCMAKE_MAKE_PROGRAM={cmake._program('ninja')}",
    ]
    status, printed = configure(
        tmp_path, "--toolchain", ROOT / TOOLCHAIN, *found_nowhere, PATH=str(tmp_path)
    )
    assert status != 0
    assert "needs aarch64-linux-gnu-g++, which is not on the PATH" in printed
    assert "apt-get install g++-12-aarch64-linux-gnu qemu-user" in printed


needs_compiler = pytest.mark.skipif(
    shutil.which(COMPILER) is None or shutil.which(QEMU) is None,
    reason=f"needs {COMPILER} and {QEMU}",
)


def run_build(module, *arguments):
    command = [sys.executable, "-m", f"build_tools{module}", *arguments]
    subprocess.run(command, cwd=ROOT, check=True)


def is_for_arm(library):
    return int.from_bytes(library[18:20], "little") == AARCH64


@pytest.mark.slow
@needs_compiler
def test_the_op_library_is_for_arm_and_the_cpp_tests_pass_under_qemu():
    for target in ("op_library", "cc_tests"):
        run_build("", target, "--preset", "arm")
    library = (cmake.folder("arm") / cmake.OUTPUTS["op_library"]).read_bytes()
    assert is_for_arm(library)
    assert b"libtensorflow_framework.so.2" in library
    tests = cmake.folder("arm") / cmake.OUTPUTS["cc_tests"]
    subprocess.run([QEMU, "-L", "/usr/aarch64-linux-gnu", tests], check=True)


@pytest.mark.slow
@needs_compiler
def test_the_wheel_for_arm_has_a_library_for_each_tensorflow(tmp_path):
    run_build(".wheel", "--machine", "aarch64", "--output", tmp_path)
    built = next(tmp_path.glob("*.whl"))
    assert "py3-none-manylinux_2_27_aarch64" in built.name
    with zipfile.ZipFile(built) as archive:
        libraries = {name: archive.read(name) for name in archive.namelist() if ".so" in name}
        assert "tf_largeout/__init__.py" in archive.namelist()
    names = {VERSION["library_name"](minor) for minor in VERSION["TENSORFLOW_MINORS"]}
    assert {pathlib.Path(name).name for name in libraries} == names
    assert all(map(is_for_arm, libraries.values()))
