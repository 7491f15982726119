"""Calls of `server_versions`."""

from tests.fuzz.draws import Call
from tf_largeout import ops


def server_versions(draws):
    def check(versions):
        assert versions.dtype == "string" and versions.shape == []

    return Call(ops.server_versions, (), {}, check)
