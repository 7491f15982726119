"""The choice of the ops, and the loader, which rejects a library that does not fit."""

import logging
import os
import subprocess
import sys
import types

import keras
import pytest
import tensorflow as tf

from tests.source_tree import ROOT
from tf_largeout.ops import gpu_cards, library, stock
from tf_largeout.version import (
    CPU_PACKAGE,
    LIBRARY_WINDOW,
    TENSORFLOW_MINORS,
    TENSORFLOW_VERSIONS,
    accepts_tensorflow,
    has_library,
)

WAYS_OUT = ["(1) set LARGEOUT_OPS=stock", "(2)", "(3)", f"{CPU_PACKAGE}{LIBRARY_WINDOW}"]
GPU_RECORD = b"largeout built with kernels for gpus emulated by cuda 13.0.88\0"


def message_of(function, *arguments, **named):
    with pytest.raises(ImportError) as caught:
        function(*arguments, **named)
    return str(caught.value)


@pytest.fixture
def fitting(tmp_path, monkeypatch):
    """A file that seems to be a library for the installed TensorFlow; it is not loaded."""
    functions = types.SimpleNamespace(largeout_lsh_hash="native", largeout_row_dots="native")
    monkeypatch.setattr(tf, "load_op_library", lambda path: functions)
    path = tmp_path / "fitting.so"
    path.write_bytes(b"largeout built for tensorflow " + tf.__version__.encode() + b"\0")
    return path


@pytest.mark.parametrize(
    ("version", "accepted", "native"),
    [
        ("2.21.0", True, True),
        ("2.21.3", True, True),
        ("2.21.0rc1", True, True),
        ("2.21.0-rc1", True, True),
        ("2.18.0", True, True),
        ("2.17.1", False, False),
        ("2.3.0", False, False),
        ("1.20.0", False, False),
        ("2.180.0", True, False),
        ("2.22.0", True, False),
        ("2.23.0-dev20260101", True, False),
        ("3.0.0", True, False),
    ],
)
def test_new_versions_are_accepted_but_have_no_library(version, accepted, native):
    assert (accepts_tensorflow(version), has_library(version)) == (accepted, native)


def test_the_version_ranges_hold_the_tested_minors():
    first, last = TENSORFLOW_MINORS[0], TENSORFLOW_MINORS[-1]
    following = int(last.split(".")[1]) + 1
    assert TENSORFLOW_VERSIONS == f">={first}.0"
    assert LIBRARY_WINDOW == f">={first}.0,<2.{following}.0"


def test_the_installed_tensorflow_is_accepted():
    assert library.check_tensorflow(tf.__version__) is None


def test_the_error_of_an_old_tensorflow_names_those_to_install():
    message = message_of(library.check_tensorflow, "2.17.0")
    for part in ["Installed: TensorFlow 2.17.0", f'"{CPU_PACKAGE}{TENSORFLOW_VERSIONS}"']:
        assert part in message


@pytest.mark.parametrize(
    ("asked", "exists", "on_gpus", "kind", "said", "level"),
    [
        ("", True, False, "native", "fitting.so is for TensorFlow", "INFO"),
        ("", False, False, "stock", "absent.so is missing", "WARNING"),
        ("", True, True, "stock", "LARGEOUT_GPU is 1", "INFO"),
        ("", False, True, "stock", "LARGEOUT_GPU is 1", "INFO"),
        ("native", True, True, "native", "LARGEOUT_OPS is native", "INFO"),
        ("stock", True, True, "stock", "LARGEOUT_OPS is stock", "INFO"),
        ("stock", False, False, "stock", "LARGEOUT_OPS is stock", "INFO"),
    ],
)
def test_one_line_says_which_ops_were_chosen_and_why(
    fitting, caplog, asked, exists, on_gpus, kind, said, level
):
    path = fitting if exists else fitting.with_name("absent.so")
    caplog.set_level(logging.INFO, "tf_largeout")
    chosen = library.choose(path, asked, is_named=False, on_gpus=on_gpus)
    library.log_choice(chosen)
    assert chosen.kind == kind and not chosen.has_gpu_kernels
    assert (chosen.functions is stock) == (kind == "stock")
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("tf_largeout", level)
    assert said in record.message and "\n" not in record.message
    assert ("LARGEOUT_OPS=stock" in record.message) == (level == "WARNING")


@pytest.mark.parametrize(
    ("asked", "is_named", "said"),
    [("native", False, "missing"), ("", True, "missing"), ("fast", False, "'fast'. Expected")],
)
def test_a_choice_that_cannot_be_met_is_an_error(tmp_path, asked, is_named, said):
    path = tmp_path / "absent.so"
    message = message_of(library.choose, path, asked, is_named=is_named, on_gpus=False)
    assert said in message


@pytest.mark.parametrize("usable", [True, False])
def test_on_gpus_ops_with_usable_gpu_kernels_come_from_the_library(
    fitting, monkeypatch, usable
):
    fitting.write_bytes(fitting.read_bytes() + GPU_RECORD)
    reason = None if usable else "The driver is old"
    monkeypatch.setattr(gpu_cards, "why_unusable", lambda *_: reason)
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: True)
    monkeypatch.setattr(gpu_cards, "find_machine", lambda: None)
    chosen = library.choose(fitting, "", is_named=False, on_gpus=True)
    assert (chosen.kind, chosen.has_gpu_kernels) == ("stock", usable)
    assert (chosen.functions.largeout_lsh_hash == "native") == usable
    assert chosen.functions.largeout_row_dots is stock.largeout_row_dots


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


@pytest.mark.skipif(library.OPS == "stock", reason="the library may be missing")
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
    for part in [said, TENSORFLOW_VERSIONS, "pip install"]:
        assert part in answer


@pytest.mark.slow
def test_the_import_error_states_the_required_keras_backend(tmp_path):
    (tmp_path / "jax.py").write_text("raise ImportError('no jax here')")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    answer = _import_error(KERAS_BACKEND="jax", PYTHONPATH=path)
    for part in ["ImportError: tf_largeout", "no jax here", "set KERAS_BACKEND=tensorflow"]:
        assert part in answer


def test_the_import_error_names_the_backend_in_use(monkeypatch):
    monkeypatch.setattr(keras.config, "backend", lambda: "torch")
    with pytest.raises(ImportError, match="backend is 'torch'. Set .*=tensorflow or .*=jax"):
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
