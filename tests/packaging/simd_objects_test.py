"""No function compiled for AVX may be the one copy that the linker keeps."""

import subprocess

import pytest

from build_tools import compilers, parts
from build_tools.objects import compile_all


def weak_symbols(objects):
    """The demangled names that the linker may take from any object that has them."""
    command = ["nm", "--demangle", "--defined-only", *(str(path) for path in objects)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(maxsplit=2) for line in listed.splitlines()]
    return {row[2] for row in rows if len(row) == 3 and row[1] in "WVu"}


@pytest.mark.parametrize("level", compilers.simd_levels())
def test_what_is_compiled_for_a_simd_level_stays_in_its_namespace(level):
    objects = compile_all(parts.core(compilers.find_cxx(), []))
    objects = [path for path in objects if path.name.endswith(f"_simd-{level}.o")]
    if not objects:
        pytest.skip("no X_simd.cc")
    shared = {one for one in weak_symbols(objects) if f"largeout::{level}::" not in one}
    assert not shared, (
        f"{sorted(shared)} are compiled for {level} and may run on any machine: define them in "
        "namespace LARGEOUT_SIMD, or keep std out of X_simd.cc."
    )
