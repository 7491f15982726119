"""The wheel with a library for each TensorFlow minor works in new environments."""

import os
import pathlib
import shutil
import sys
import venv
import zipfile

import pytest
import tensorflow as tf

from build_tools import cmake, tensorflow_download, wheel
from build_tools.tensorflow_install import VERSION
from tests import code_blocks
from tests.packaging.wheel_test import package_files, run
from tests.source_tree import ROOT

MINORS = VERSION["TENSORFLOW_MINORS"]

# Runs in an environment that has only the wheel and its requirements.
PROGRAM = """
import pathlib, shutil, sys
import numpy as np
import tensorflow as tf
import tf_largeout as tflo
from tf_largeout.ops import library
import code_blocks

assert not any(map(shutil.which, ["g++", "gcc", "c++", "cc", "clang", "cmake", "ninja"]))
assert library.OPS == "native"
assert library.compiled_for(library.LOADED).split(".")[:2] == tf.__version__.split(".")[:2]
assert str(library.LOADED).startswith(sys.prefix)
names = code_blocks.run_blocks(pathlib.Path(sys.argv[1]))
for ops in ("core", "custom"):
    tflo.serving.export(names["model"], f"export_{ops}/1", k=5, ops=ops)
    served = tf.saved_model.load(f"export_{ops}/1").signatures["serving_default"]
    answer = served(features=tf.constant(names["x"][:3]))
    np.testing.assert_array_equal(answer["ids"], names["ids"])
print("Python", sys.version.split()[0], "TensorFlow", tf.__version__, library.LOADED.name)
print("P@1", names["result"]["precision_at_1"])
"""


def test_headers_are_taken_from_the_wheel_of_a_tensorflow_version(tmp_path, monkeypatch):
    package, metadata = "tensorflow/include/a.h", "tensorflow_cpu-2.19.1.dist-info/METADATA"
    files = {package: "", "tensorflow/libtensorflow_framework.so.2": "", "tensorflow/x.so": ""}
    files[metadata] = "Metadata-Version: 2.1\nName: tensorflow_cpu\nVersion: 2.19.1\n"
    commands = []

    def pip(command, what):
        commands.append(command)
        folder = pathlib.Path(command[command.index("--dest") + 1])
        with zipfile.ZipFile(folder / "tensorflow_cpu-2.19.1.whl", "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)

    monkeypatch.setattr(tensorflow_download, "FOLDER", tmp_path)
    monkeypatch.setattr(cmake, "run", pip)
    for _ in range(2):  # The second call uses the download of the first.
        found = tensorflow_download.download("2.19")
    assert (found.version, len(commands)) == ("2.19.1", 1)
    assert commands[0][-1] == "tensorflow-cpu==2.19.*"
    unpacked = {str(one.relative_to(tmp_path / "x86_64/2.19")) for one in tmp_path.rglob("*.*")}
    assert {package, "tensorflow/libtensorflow_framework.so.2"} <= unpacked
    assert "tensorflow/x.so" not in unpacked


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return wheel.build("x86_64", tmp_path_factory.mktemp("dist"))


def files_of(path):
    """Returns the names of the package's files in a wheel; auditwheel adds folders."""
    names = zipfile.ZipFile(path).namelist()
    return {name for name in names if ".dist-info" not in name and not name.endswith("/")}


@pytest.mark.slow
def test_it_runs_on_linux_of_2018_and_later_and_holds_a_library_for_each_minor(built):
    tag = "manylinux_2_27_x86_64"  # As for TensorFlow 2.21; g++ 8.
    assert built.name.startswith(f"tf_largeout-{VERSION['__version__']}-py3-none-")
    assert tag in built.name
    names = files_of(built)
    libraries = {f"tf_largeout/ops/{VERSION['library_name'](minor)}" for minor in MINORS}
    assert names == package_files() | libraries


@pytest.mark.slow
def test_errors_inside_its_libraries_reach_python(built, tmp_path):
    zipfile.ZipFile(built).extractall(tmp_path)
    library = tmp_path / "tf_largeout" / "ops" / VERSION["library_name"](tf.__version__)
    tests = ["tests/ops/out_of_memory_test.py", "tests/ops/bad_arguments_test.py"]
    run(
        [sys.executable, "-m", "pytest", "-x", "-n", "0", *tests],
        cwd=ROOT,
        env={**os.environ, "LARGEOUT_OPS_LIBRARY": str(library)},
    )


@pytest.mark.slow
@pytest.mark.parametrize("minor", MINORS)
def test_it_trains_and_exports_in_a_new_environment_without_a_compiler(built, minor, tmp_path):
    if minor < "2.20" and sys.version_info >= (3, 13):
        pytest.skip(f"TensorFlow {minor} has no wheel for Python 3.13")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run([python, "-m", "pip", "install", built, f"tensorflow-cpu=={minor}.*"], cwd=tmp_path)
    shutil.copy(code_blocks.__file__, tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM)
    printed = run(
        [python, "program.py", ROOT / "README.md"],
        cwd=tmp_path,
        env={"PATH": str(python.parent), "HOME": str(tmp_path)},
    )
    print(printed)
    said = printed.splitlines()
    assert said[-2].endswith(VERSION["library_name"](minor))
    assert float(said[-1].split()[-1]) > 0.6
