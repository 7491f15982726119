"""Builds the op library, or a test program: `python -m build_tools TARGET`."""

import argparse
import pathlib
import sys

from build_tools import cmake, tensorflow_download
from build_tools.errors import BuildError
from build_tools.tensorflow_install import VERSION


def main() -> int:
    """Builds the target given on the command line, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m build_tools", description=__doc__)
    parser.add_argument("target", choices=cmake.OUTPUTS)
    parser.add_argument("--preset", help="release, sanitize, cuda, ...; see CMakePresets.json")
    parser.add_argument("--copy-to", type=pathlib.Path, help="where to copy the op library")
    parser.add_argument("-D", action="append", default=[], metavar="NAME=VALUE")
    arguments = parser.parse_args()
    try:
        if arguments.copy_to:
            cmake.build_op_library(arguments.copy_to, arguments.preset)
        else:
            preset = arguments.preset or "release"
            tensorflow = None
            if preset == "arm" and arguments.target in cmake.NEED_TENSORFLOW:
                newest = VERSION["TENSORFLOW_MINORS"][-1]
                tensorflow = tensorflow_download.download(newest, "aarch64")
            print(cmake.build(arguments.target, preset, *arguments.D, tensorflow=tensorflow))
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
