"""Reports, the output of child processes, and command lines."""

import argparse
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


def new_parser(name, description, has_picture=True):
    """Returns a parser for `python -m benchmarks NAME`, with options for its files.

    Args:
        name: Name of the benchmark.
        description: Docstring of the benchmark.
        has_picture: Whether to add the option `--png`, in addition to `--json`.
    """
    parser = argparse.ArgumentParser(
        f"python -m benchmarks {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", help="file for the figures")
    if has_picture:
        parser.add_argument("--png", help="file for the picture")
    return parser


def markdown(head, rows):
    """Returns a Markdown table of texts. Cells are right-aligned, except in the first column.

    Args:
        head: title of each column.
        rows: cells of each row.
    """
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
