"""A missing or old compiler is named; SIMD levels fit the processor family."""

import pytest

from build_tools import compilers
from build_tools.errors import BuildError


def message_of_find_cxx():
    with pytest.raises(BuildError) as caught:
        compilers.find_cxx()
    return str(caught.value)


def test_the_compiler_of_this_machine_is_found(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    assert compilers.find_cxx() == "g++"


def test_no_compiler_is_an_error_that_says_how_to_get_one(monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    message = message_of_find_cxx()
    for part in ["'g++' is not on the PATH", "apt-get install g++", "CXX="]:
        assert part in message


@pytest.mark.parametrize(
    ("reported", "shown"), [("#define __GNUC__ 7", "7"), ("nothing of use", "0")]
)
def test_a_compiler_too_old_for_cpp17_is_an_error_that_names_its_version(
    monkeypatch, tmp_path, reported, shown
):
    old = tmp_path / "g++-old"
    old.write_text(f"#!/bin/sh\necho '{reported}'\n")
    old.chmod(0o755)
    monkeypatch.setenv("CXX", str(old))
    message = message_of_find_cxx()
    for part in [f"is version {shown}", "C++17", f"g++ {compilers.OLDEST_GXX} or newer"]:
        assert part in message


def test_systems_other_than_linux_are_refused_with_a_way_out(monkeypatch):
    monkeypatch.setattr(compilers.sys, "platform", "darwin")
    assert "Linux container" in message_of_find_cxx()


@pytest.mark.parametrize(
    ("machine", "levels"),
    [
        ("x86_64", ["generic", "avx2", "avx512"]),
        ("aarch64", ["generic"]),
        ("ppc64le", ["generic"]),
    ],
)
def test_only_x86_has_the_avx_levels(machine, levels):
    assert list(compilers.simd_levels(machine)) == levels
