"""Replaces checksums of source files, for tiny test files."""

import dataclasses
import hashlib


def pinned(source, path):
    """Returns `source` with the name, size and checksum of the file at `path`."""
    content = path.read_bytes()
    return dataclasses.replace(
        source,
        name=path.name,
        num_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )
