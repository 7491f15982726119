"""What happens where the packages of the extra `examples` are not installed."""

import importlib
import subprocess
import sys

import pytest

MISSING = ("dill", "importlib_resources", "matplotlib", "tensorflow_datasets", "tqdm")


def run_without_extras(program):
    hide = f"import sys; sys.modules.update(dict.fromkeys({MISSING!r}))\n"
    return subprocess.run(
        [sys.executable, "-c", hide + program], capture_output=True, text=True
    )


USES = {
    "tqdm": "datasets.load('place_names')",
    "tensorflow_datasets": "importlib.import_module('tf_largeout.datasets.builders')",
}


def assert_says(error, package):
    assert f"package {package}," in error
    assert 'pip install "tf_largeout[examples]"' in error


@pytest.mark.parametrize(
    "module, package", [("progress", "tqdm"), ("tfds_api", "tensorflow_datasets")]
)
def test_a_module_without_its_package_says_what_it_needs(module, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"tf_largeout.datasets.{module}", raising=False)
    with pytest.raises(ImportError) as error:
        importlib.import_module(f"tf_largeout.datasets.{module}")
    assert_says(str(error.value), package)


@pytest.mark.slow
def test_without_the_extras_the_package_works_and_the_datasets_say_what_they_need():
    program = "import importlib, tf_largeout\nfrom tf_largeout import datasets\n"
    program += "assert datasets.place_names.encode(['Bonn']).shape == (1, 40)\n"
    for package, use in USES.items():
        program += f"try: {use}\nexcept ImportError as error: print(type(error), error)\n"
        program += f"del sys.modules[{package!r}]\n"  # The next use finds this package.
    result = run_without_extras(program)
    assert result.returncode == 0, result.stderr
    said = result.stdout.splitlines()
    for package, line in zip(USES, said, strict=True):
        assert line.startswith("<class 'ImportError'>")
        assert_says(line, package)
