"""When the op library is compiled."""

import re

import pytest

from build_tools import native
from build_tools.errors import BuildError


@pytest.mark.parametrize(
    ("value", "system", "path", "reason"),
    [
        (None, "Linux", None, None),
        ("1", "Windows", "/none", None),
        ("0", "Linux", None, "LARGEOUT_NATIVE is 0"),
        (None, "Linux", "/none", "no C.. compiler"),
        (None, "Darwin", None, "does not support Darwin"),
    ],
)
def test_the_environment_decides_whether_the_op_library_is_compiled(
    monkeypatch, value, system, path, reason
):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(native.platform, "system", lambda: system)
    for name, given in (("LARGEOUT_NATIVE", value), ("PATH", path)):
        if given is not None:
            monkeypatch.setenv(name, given)
    found = native.why_not()
    assert found is reason is None or re.search(reason, native.notice(found))


def test_another_value_is_an_error(monkeypatch):
    monkeypatch.setenv("LARGEOUT_NATIVE", "yes")
    with pytest.raises(BuildError, match="Expected 1 .*, 0 .* or unset"):
        native.why_not()
