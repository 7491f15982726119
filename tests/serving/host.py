"""A C++ program that runs signatures of a SavedModel as TensorFlow Serving does."""

import subprocess

import numpy as np

from build_tools import cmake
from tests import compiler


def build():
    """Returns the program, after compiling it if its source or TensorFlow changed."""
    compiler.require()
    return cmake.build("serving_host")


def run(program, folder, signature, inputs, library=()):
    """Returns the outputs of a signature by name; fails with TensorFlow's message.

    The environment is empty, so that the program depends on nothing else.
    """
    done = start(program, folder, signature, inputs, library)
    assert done.returncode == 0, done.stderr
    return dict(map(_parsed, done.stdout.splitlines()))


def start(program, folder, signature, inputs, library=()):
    """Returns the `subprocess.CompletedProcess` of the program."""
    lines = [_line(name, np.asarray(value)) for name, value in inputs.items()]
    command = [program, folder, signature, *library]
    return subprocess.run(
        list(map(str, command)), input="\n".join(lines), capture_output=True, text=True, env={}
    )


def _line(name, value):
    kind = "string" if value.dtype.kind in "US" else value.dtype.name
    digits = [f"{one:.9g}" if value.dtype.kind == "f" else one for one in value.flatten()]
    return " ".join(map(str, [name, kind, value.ndim, *value.shape, *digits]))


def _parsed(line):
    name, kind, rank, *rest = line.split()
    shape = list(map(int, rest[: int(rank)]))
    return name, np.array(rest[int(rank) :]).astype(kind).reshape(shape)
