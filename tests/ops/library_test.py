"""The loader rejects an unsuitable library with an error that has remedies."""

import os
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

from tests.source_tree import ROOT
from tf_largeout.ops import library
from tf_largeout.version import TENSORFLOW_MINORS, TENSORFLOW_WINDOW, accepts_tensorflow

WAYS_OUT = ["(1)", "(2)", "(3)", f'pip install "tensorflow-cpu{TENSORFLOW_WINDOW}"']


def message_of(function, *arguments):
    with pytest.raises(ImportError) as caught:
        function(*arguments)
    return str(caught.value)


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        ("2.21.0", True),
        ("2.21.3", True),
        ("2.21.0rc1", True),
        ("2.21.0-rc1", True),
        ("2.18.0", True),
        ("2.17.1", False),
        ("2.180.0", False),
        ("2.22.0", False),
        ("2.22.0-dev20260101", False),
        ("3.0.0", False),
    ],
)
def test_supported_minor_versions_are_accepted(version, accepted):
    assert accepts_tensorflow(version) == accepted


def test_the_version_range_holds_the_supported_minors():
    first, last = TENSORFLOW_MINORS[0], TENSORFLOW_MINORS[-1]
    following = int(last.split(".")[1]) + 1
    assert TENSORFLOW_WINDOW == f">={first}.0,<2.{following}.0"


def test_the_installed_tensorflow_is_accepted():
    assert accepts_tensorflow(tf.__version__)
    assert library.check_tensorflow(tf.__version__) is None


@pytest.mark.parametrize("version", ["2.17.0", "2.22.1"])
def test_the_error_of_an_unsupported_tensorflow_has_three_remedies(version):
    message = message_of(library.check_tensorflow, version)
    for part in [f"Installed: TensorFlow {version}", TENSORFLOW_WINDOW, *WAYS_OUT]:
        assert part in message


def test_the_error_of_a_missing_library_has_three_remedies(tmp_path):
    message = message_of(library.check_library, tmp_path / "absent.so", "2.21.0")
    for part in ["absent.so is missing", "installed TensorFlow 2.21.0", "none", *WAYS_OUT]:
        assert part in message


def test_a_wheel_has_a_library_per_minor_and_a_source_install_has_one(tmp_path):
    for name in ["_largeout_ops_2_18.so", "_largeout_ops_2_20.so"]:
        (tmp_path / name).touch()
    for version in ["2.18.1", "2.18.0-rc1"]:
        found = library.library_for(version, tmp_path)
        assert found == tmp_path / "_largeout_ops_2_18.so"
    absent = library.library_for("2.19.0", tmp_path)
    assert absent == tmp_path / "_largeout_ops.so"
    message = message_of(library.check_library, absent, "2.19.0")
    for part in ["2.19.0", "_largeout_ops_2_18.so, _largeout_ops_2_20.so", *WAYS_OUT]:
        assert part in message


@pytest.mark.parametrize(
    ("content", "built_for"),
    [
        (b"\x7fELF..largeout built for tensorflow 2.2.1\0..", "2.2.1"),
        (b"\x7fELF some other library", "unknown"),
        (b"", "unknown"),
    ],
)
def test_a_library_for_another_tensorflow_raises_an_error_before_it_is_loaded(
    tmp_path, content, built_for
):
    path = tmp_path / "other.so"
    path.write_bytes(content)
    message = message_of(library.load, path)
    for part in [f"compiled for TensorFlow {built_for}", tf.__version__, *WAYS_OUT]:
        assert part in message


def test_a_damaged_library_is_an_import_error_with_remedies(tmp_path):
    path = tmp_path / "damaged.so"
    path.write_bytes(b"largeout built for tensorflow " + tf.__version__.encode() + b"\0")
    message = message_of(library.load, path)
    for part in ["damaged.so does not load", *WAYS_OUT]:
        assert part in message


def test_a_library_reports_the_tensorflow_it_was_compiled_for():
    assert library.compiled_for(library.LOADED) == tf.__version__


@pytest.mark.parametrize(
    ("fake", "said"),
    [
        ("raise ImportError('none here')", "needs TensorFlow"),
        ("__version__ = '2.17.0'", "Installed: TensorFlow 2.17.0"),
    ],
)
def test_the_import_error_states_the_required_tensorflow(tmp_path, fake, said):
    (tmp_path / "tensorflow.py").write_text(fake)
    answer = _import_error(PYTHONPATH=os.pathsep.join([str(tmp_path), str(ROOT)]))
    for part in [said, TENSORFLOW_WINDOW, "pip install"]:
        assert part in answer


@pytest.mark.slow
def test_the_import_error_states_the_required_keras_backend(tmp_path):
    (tmp_path / "jax.py").write_text("raise ImportError('no jax here')")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    answer = _import_error(KERAS_BACKEND="jax", PYTHONPATH=path)
    for part in ["ImportError: tf_largeout", "jax", "Set KERAS_BACKEND=tensorflow"]:
        assert part in answer


def test_the_import_error_names_the_backend_in_use(monkeypatch):
    monkeypatch.setattr(keras.config, "backend", lambda: "torch")
    with pytest.raises(ImportError, match="backend is 'torch'. Set KERAS_BACKEND=tensorflow"):
        library.check_keras()


def _import_error(**environment):
    """Returns the last line of the error of a new Python process that imports the package."""
    done = subprocess.run(
        [sys.executable, "-c", "import tf_largeout"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    return done.stderr.splitlines()[-1]
