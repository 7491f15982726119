"""The wheel and the sdist have the right files, and work from another directory."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile

import pytest

from build_tools import native
from build_tools.tensorflow_install import VERSION
from tests.source_tree import ROOT

IS_PURE = bool(native.why_not())
USE = (
    "import tf_largeout, tf_largeout.ops.library as library;"
    f"assert library.OPS == {'stock' if IS_PURE else 'native'!r};"
    "print(tf_largeout.__file__)"
)


def run(command, **options):
    """Runs a command and returns its output. A failure shows all output."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(hook, folder):
    """Calls a hook of the build backend as pip does, without build isolation."""
    code = f"from build_tools import backend; backend.build_{hook}({str(folder)!r})"
    run([sys.executable, "-c", code], cwd=ROOT)
    return next(folder.iterdir())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    return build("sdist", tmp_path_factory.mktemp("sdist"))


def bare_environment(folder):
    """Creates an empty virtual environment and returns its Python."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def package_files():
    """Returns the package's modules and other files."""
    files = [path for path in (ROOT / "tf_largeout").rglob("*.*") if path.is_file()]
    compiled = (".so", ".pyc", ".tmp")
    return {str(path.relative_to(ROOT)) for path in files if path.suffix not in compiled}


def test_the_wheel_is_for_every_python_of_this_platform(wheel):
    platform = "any" if IS_PURE else re.sub("[-.]", "_", sysconfig.get_platform())
    assert wheel.name == f"tf_largeout-{VERSION['__version__']}-py3-none-{platform}.whl"


def test_the_wheel_holds_the_package_the_library_and_the_licence_only(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info" not in name}
    library = set() if IS_PURE else {"tf_largeout/ops/_largeout_ops.so"}
    assert names == package_files() | library
    assert any(name.endswith("LICENSE") for name in zipfile.ZipFile(wheel).namelist())


@pytest.mark.slow
def test_the_wheel_works_from_another_directory(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    path = os.pathsep.join([str(tmp_path / "site"), sysconfig.get_path("purelib")])
    printed = run(
        [sys.executable, "-c", USE], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}
    )
    assert pathlib.Path(printed.splitlines()[-1]).is_relative_to(tmp_path / "site")


def test_the_sdist_holds_everything_that_the_build_reads(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    needed = package_files() | {"setup.py", "pyproject.toml", "LICENSE", "BUILD"}
    for folder in ("custom_ops", "build_tools"):
        files = (ROOT / folder).rglob("*.*")
        needed |= {str(path.relative_to(ROOT)) for path in files if path.suffix != ".pyc"}
    assert needed <= names
    assert not {name for name in names if name.endswith((".so", ".o", ".pyc"))}


@pytest.mark.slow
def test_pip_installs_the_sources_with_tensorflow_in_a_new_environment(tmp_path):
    python = bare_environment(tmp_path / "venv")
    run([python, "-m", "pip", "install", f"{ROOT}[cpu]"], cwd=tmp_path)
    printed = run([python, "-c", USE], cwd=tmp_path)
    assert pathlib.Path(printed.splitlines()[-1]).is_relative_to(tmp_path / "venv")


JAX_PROGRAM = """
import importlib.util
import keras, numpy as np
import tf_largeout as tflo

assert importlib.util.find_spec("tensorflow") is None
output = tflo.layers.LargeOutput(50, sampler=tflo.samplers.UniformSampler(20))
model = keras.Sequential([keras.layers.Dense(16), output])
model.compile(tflo.optimizers.LazyAdam(0.1), tflo.losses.SampledSoftmaxLoss())
x, y = np.eye(50, dtype="float32"), np.arange(50)
losses = model.fit(x, y, epochs=20, verbose=0).history["loss"]
assert losses[-1] < 0.5 * losses[0], losses
print(tflo.__file__)
"""


@pytest.mark.slow
@pytest.mark.parametrize("has_jax", [True, False], ids=["jax_first", "jax_with_it"])
def test_pip_installs_the_sources_without_tensorflow_or_a_compiler_for_jax(has_jax, tmp_path):
    python = bare_environment(tmp_path / "venv")
    tools = tmp_path / "bin"  # a PATH without a compiler
    tools.mkdir()
    for name in ("sh", "env", "uname"):
        (tools / name).symlink_to(shutil.which(name))
    on_jax = {**os.environ, "PATH": str(tools), "KERAS_BACKEND": "jax"}
    if has_jax:
        run([python, "-m", "pip", "install", "jax", "keras", "numpy"], cwd=tmp_path)
        del on_jax["KERAS_BACKEND"]
    run([python, "-m", "pip", "install", f"{ROOT}[jax]"], cwd=tmp_path, env=on_jax)
    on_jax["KERAS_BACKEND"] = "jax"
    printed = run([python, "-c", JAX_PROGRAM], cwd=tmp_path, env=on_jax)
    assert pathlib.Path(printed.splitlines()[-1]).is_relative_to(tmp_path / "venv")


@pytest.mark.slow
def test_pip_installs_the_sdist_with_tensorflow_in_a_new_environment(sdist, tmp_path):
    python = bare_environment(tmp_path / "venv")
    run([python, "-m", "pip", "install", f"{sdist}[cpu]"], cwd=tmp_path)
    run([python, "-c", USE], cwd=tmp_path)


@pytest.mark.slow
def test_pip_installs_the_wheel_with_tensorflow_in_a_new_environment(wheel, tmp_path):
    python = bare_environment(tmp_path / "venv")
    run([python, "-m", "pip", "install", f"{wheel}[cpu]"], cwd=tmp_path)
    run([python, "-c", USE], cwd=tmp_path)
