"""Tests that compile C++ are skipped where the op library is not compiled."""

import pytest

from build_tools import native


def require() -> None:
    """Skips the test if there is no C++ compiler."""
    if reason := native.why_never():
        pytest.skip(reason)
