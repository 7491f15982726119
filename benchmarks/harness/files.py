"""Reports as text and as files, and the output of child processes."""

import contextlib
import json
import os
import pathlib

from tf_largeout.atomic_file import atomic_file


def write_json(path, content):
    """Writes JSON so that a reader sees either the old file or the complete new file."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(json.dumps(content, indent=1).encode())


def size_mb(path):
    """Returns the size in MiB of a file, or of all files in a folder."""
    path = pathlib.Path(path)
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return sum(one.stat().st_size for one in files) / 2**20


@contextlib.contextmanager
def stderr_to(path):
    """Redirects stderr to a file, also that of processes started in the `with` block."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _writes_to(path, 2):
        yield


@contextlib.contextmanager
def silent():
    """Discards all output that is written inside, including that of C and other libraries."""
    with _writes_to(os.devnull, 1), _writes_to(os.devnull, 2):
        yield


@contextlib.contextmanager
def _writes_to(path, descriptor):
    kept = os.dup(descriptor)
    try:
        with open(path, "w") as file:
            os.dup2(file.fileno(), descriptor)
        yield
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)
