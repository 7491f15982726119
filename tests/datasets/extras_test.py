"""Tests without the packages of the extra `examples`."""

import subprocess
import sys

import pytest

from tf_largeout.datasets.sources import progress

MISSING = ("dill", "importlib_resources", "matplotlib", "tensorflow_datasets", "tqdm")


def run_without_extras(program):
    hide = f"import sys; sys.modules.update(dict.fromkeys({MISSING!r}))\n"
    return subprocess.run(
        [sys.executable, "-c", hide + program], capture_output=True, text=True
    )


USES = {
    "tqdm": "importlib.import_module('tf_largeout.datasets.sources').progress([])",
    "tensorflow_datasets": "importlib.import_module('tf_largeout.datasets.builders')",
}


def assert_names_package(error, package):
    assert f"package {package}," in error
    assert 'pip install "tf_largeout[examples]"' in error


def test_the_error_of_a_missing_package_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError) as error:
        progress([])
    assert_names_package(str(error.value), "tqdm")


@pytest.mark.slow
def test_without_the_extras_only_the_datasets_fail():
    program = "import importlib, tf_largeout\nfrom tf_largeout import datasets\n"
    program += "assert datasets.place_names.encode(['Bonn']).shape == (1, 40)\n"
    for package, use in USES.items():
        program += f"try: {use}\nexcept ImportError as error: print(type(error), error)\n"
        program += f"del sys.modules[{package!r}]\n"  # The next use can import this package.
    result = run_without_extras(program)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    for package, line in zip(USES, lines, strict=True):
        assert line.startswith("<class 'ImportError'>")
        assert_names_package(line, package)
