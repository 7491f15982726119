"""BUILD builds the same as setup.py. As BUILD is valid Python, it is evaluated here."""

import collections
import re

from tests.source_tree import ROOT

# The instruction sets of CMakeLists.txt, and their flags.
LEVELS = {
    level: flags.split()
    for level, flags in re.findall(
        r'^set\(simd_flags_(\w+) "?(.*?)"?\)$',
        (ROOT / "CMakeLists.txt").read_text(),
        re.MULTILINE,
    )
}

# All files except those for real or emulated GPUs, as BUILD is for the CPU.
SOURCES = {
    str(path.relative_to(ROOT))
    for path in (ROOT / "custom_ops").rglob("*.*")
    if path.suffix in (".h", ".cc")
    and not path.stem.endswith(("_gpu", "_check"))
    and not path.stem.startswith("tensorflow_")
}


def glob(patterns, exclude=()):
    def paths(of):
        return {str(path.relative_to(ROOT)) for pattern in of for path in ROOT.glob(pattern)}

    return sorted(paths(patterns) - paths(exclude))


def targets():
    """Returns the arguments of each target by name, with the x86-64 branch of each select."""
    found = {}

    def rule(name, **arguments):
        assert name not in found, f"two targets called {name}"
        found[name] = arguments

    rules = dict.fromkeys(["cc_binary", "cc_library", "cc_test", "py_library"], rule)
    names = {
        **rules,
        "glob": glob,
        "select": lambda branches: branches["@platforms//cpu:x86_64"],
        **dict.fromkeys(["load", "package", "licenses"], lambda *_, **__: None),
    }
    exec(compile((ROOT / "BUILD").read_text(), "BUILD", "exec"), names)
    return found


def test_every_cpp_file_is_in_one_target_and_simd_files_in_one_per_level():
    uses = collections.Counter()
    for target in targets().values():
        uses.update([*target.get("srcs", []), *target.get("hdrs", [])])
    for source in sorted(SOURCES):
        expected = len(LEVELS) if source.endswith("_simd.cc") else 1
        assert uses[source] == expected, f"BUILD names {source} {uses[source]} times"


def test_every_python_module_is_in_the_library():
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "tf_largeout").rglob("*.py")}
    assert modules == set(targets()["tf_largeout"]["srcs"])


def test_dependencies_within_the_file_exist():
    found = targets()
    for name, target in found.items():
        for label in [*target.get("deps", []), *target.get("data", [])]:
            assert not label.startswith(":") or label[1:] in found, f"{name} needs {label}"


def test_core_does_not_depend_on_tensorflow():
    found = targets()
    for name in (one for one in found if one.startswith("core")):
        assert not [one for one in found[name].get("deps", []) if "tensorflow" in one]


def test_code_that_registers_itself_is_always_linked():
    found = targets()
    assert all(found[name]["alwayslink"] for name in ("kernels", "ops", "largeout_ops"))
    assert found["tf_largeout/ops/_largeout_ops.so"]["linkshared"]


def test_the_simd_flags_are_those_of_the_build():
    found = targets()
    assert list(LEVELS) == ["generic", "avx2", "avx512"]
    for level, flags in LEVELS.items():
        copts = found[f"core_simd_{level}"]["copts"]
        assert [one for one in copts if re.match("-m", one)] == flags
        assert f"-DLARGEOUT_SIMD={level}" in copts
