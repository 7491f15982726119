"""The linker must not keep an AVX copy of a function that other code shares."""

import subprocess

import pytest

from build_tools import cmake
from tests import compiler

LEVELS = ("generic", "avx2", "avx512")


def weak_symbols(objects):
    """Returns the demangled names of which the linker keeps an arbitrary copy."""
    command = ["nm", "--demangle", "--defined-only", *(str(path) for path in objects)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()]
    return {row[2] for row in rows if len(row) == 3 and row[1] in "WVu"}


@pytest.fixture(scope="module")
def objects_of():
    """Returns a function that returns the objects of X_simd.cc for a SIMD level."""
    compiler.require()
    folder = cmake.build("op_library").parent / "CMakeFiles"
    return lambda level: list(folder.glob(f"core_simd_{level}.dir/**/*.o"))


@pytest.mark.parametrize("level", LEVELS)
def test_code_for_a_simd_level_stays_in_its_namespace(objects_of, level):
    objects = objects_of(level)
    if level == "generic":
        assert objects
    if not objects:
        pytest.skip(f"{level} is not a level of this processor family")
    shared = {one for one in weak_symbols(objects) if f"largeout::{level}::" not in one}
    assert not shared, (
        f"{sorted(shared)} are compiled for {level} and may run on any machine: define them in "
        "namespace LARGEOUT_SIMD, or do not use std in X_simd.cc."
    )
