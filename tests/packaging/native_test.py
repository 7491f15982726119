"""When the op library is compiled."""

import pathlib
import re

import pytest

from build_tools import native, tensorflow_install
from build_tools.errors import BuildError
from build_tools.tensorflow_install import TensorFlow


@pytest.mark.parametrize(
    ("value", "system", "path", "version", "reason"),
    [
        (None, "Linux", None, None, None),
        ("1", "Windows", "/none", "2.22.0", None),
        ("0", "Linux", None, None, "LARGEOUT_NATIVE is 0"),
        (None, "Linux", "/none", None, "no C.. compiler"),
        (None, "Darwin", None, None, "does not support Darwin"),
        (None, "Linux", None, "2.21.0", None),
        (None, "Linux", None, "2.22.0", "is for TensorFlow .*, not 2.22.0"),
    ],
)
def test_the_environment_decides_whether_the_op_library_is_compiled(
    monkeypatch, value, system, path, version, reason
):
    which = lambda name: path is None and f"/usr/bin/{name}"  # noqa: E731
    monkeypatch.setattr(native.shutil, "which", which)
    found = version and TensorFlow(version, pathlib.Path(), "tensorflow-cpu")
    monkeypatch.setattr(tensorflow_install, "find", lambda *_: found)
    monkeypatch.setattr(tensorflow_install, "why_only_jax", lambda: None)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(native.platform, "system", lambda: system)
    monkeypatch.setenv("LARGEOUT_NATIVE", value or "")
    found = native.why_not()
    assert found is reason is None or re.search(reason, native.notice(found))


def test_another_value_is_an_error(monkeypatch):
    monkeypatch.setenv("LARGEOUT_NATIVE", "yes")
    with pytest.raises(BuildError, match="Expected 1 .*, 0 .* or unset"):
        native.why_not()


def test_an_installation_without_the_library_says_so_in_one_line(capsys):
    native.announce("no C++ compiler is on the PATH")
    (line,) = capsys.readouterr().err.splitlines()
    assert "without its op library: no C++ compiler is on the PATH" in line
