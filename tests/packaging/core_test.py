"""Runs the C++ tests of core (also: `make test-cc`)."""

import subprocess

import pytest

from build_tools.targets import ROOT, build_tests


@pytest.fixture(scope="module")
def program():
    output = ROOT / "build" / "cc_tests"
    build_tests(output)
    return output


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


def test_the_cpp_tests_of_core_pass(program):
    done = run(program)
    assert done.returncode == 0, done.stdout


def test_a_name_that_no_cpp_test_has_is_a_failure(program):
    done = run(program, "NoTestIsCalledThis")
    assert done.returncode == 1
    assert "0 tests" in done.stdout


def test_a_failed_expectation_fails_the_program_and_shows_both_sides(tmp_path):
    source = tmp_path / "wrong_test.cc"
    source.write_text(
        '#include <vector>\n#include "custom_ops/core/testing.h"\n'
        "TEST(Wrong) {\n"
        "  EXPECT_EQ(std::vector<int>({1, 2}), std::vector<int>({1, 3}));\n"
        "  EXPECT_NEAR(0.0 / 0.0, 1.0, 1e9);\n"
        "  ASSERT_TRUE(false);\n"
        "  EXPECT_EQ(4, 5);\n"
        "}\n"
    )
    core = [ROOT / "custom_ops" / "core" / name for name in ("testing.cc", "simd_level.cc")]
    program = tmp_path / "wrong"
    done = run("g++", "-std=c++17", f"-I{ROOT}", source, *core, "-o", program)
    assert done.returncode == 0, done.stderr
    done = run(program)
    assert done.returncode == 1
    for part in ["left:  {1, 2}", "right: {1, 3}", "nan", "FAILED Wrong", "1 failed"]:
        assert part in done.stdout
    assert "4 == 5" not in done.stdout
