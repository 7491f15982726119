"""The build for 64-bit ARM: its preset and SIMD levels, and (slow) its op library and tests."""

import json
import shutil
import subprocess
import sys

import pytest

from build_tools import cmake
from tests.packaging.cmake_test import configure
from tests.source_tree import ROOT

TOOLCHAIN = "build_tools/aarch64.cmake"
COMPILER = "aarch64-linux-gnu-g++-12"
QEMU = "qemu-aarch64"
AARCH64 = 183  # in the ELF header


def test_the_preset_has_the_toolchain_for_arm_and_a_folder_of_its_own():
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


def test_a_missing_compiler_is_an_error_that_says_how_to_install_it(tmp_path):
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


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(QEMU)), reason=f"needs {COMPILER} and {QEMU}"
)
def test_the_op_library_is_for_arm_and_the_cpp_tests_pass_under_qemu():
    for target in ("op_library", "cc_tests"):
        command = [sys.executable, "-m", "build_tools", target, "--preset", "arm"]
        subprocess.run(command, cwd=ROOT, check=True)
    library = (cmake.folder("arm") / cmake.OUTPUTS["op_library"]).read_bytes()
    assert int.from_bytes(library[18:20], "little") == AARCH64
    assert b"libtensorflow_framework.so.2" in library
    tests = cmake.folder("arm") / cmake.OUTPUTS["cc_tests"]
    subprocess.run([QEMU, "-L", "/usr/aarch64-linux-gnu", tests], check=True)
