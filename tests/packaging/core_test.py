"""The program of the C++ tests reports failures. `make test-cc` runs the tests themselves."""

import subprocess

import pytest

from tests.source_tree import ROOT

WRONG = """
#include <vector>
#include "custom_ops/core/base/testing.h"
TEST(Wrong) {
  EXPECT_EQ(std::vector<int>({1, 2}), std::vector<int>({1, 3}));
  EXPECT_NEAR(0.0 / 0.0, 1.0, 1e9);
  ASSERT_TRUE(false);
  EXPECT_EQ(4, 5);
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Returns a program with one failing test."""
    folder = tmp_path_factory.mktemp("wrong")
    source, output = folder / "wrong_test.cc", folder / "wrong"
    source.write_text(WRONG)
    core = [
        ROOT / "custom_ops" / "core" / "base" / name for name in ("testing.cc", "simd_level.cc")
    ]
    done = run("g++", "-std=c++17", f"-I{ROOT}", source, *core, "-o", output)
    assert done.returncode == 0, done.stderr
    return output


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


pytestmark = pytest.mark.slow  # Runs a compiler.


def test_a_name_without_a_cpp_test_is_a_failure(program):
    done = run(program, "NoTestIsCalledThis")
    assert done.returncode == 1
    assert "0 tests" in done.stdout


def test_a_failed_expectation_fails_the_program_and_shows_both_sides(program):
    done = run(program)
    assert done.returncode == 1
    for part in ["left:  {1, 2}", "right: {1, 3}", "nan", "FAILED Wrong", "1 failed"]:
        assert part in done.stdout
    assert "4 == 5" not in done.stdout
