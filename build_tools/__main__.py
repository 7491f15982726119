"""`python -m build_tools TARGET OUTPUT [--sanitize]`: builds `ops` or `tests`."""

import argparse
import pathlib
import sys

from build_tools.errors import BuildError
from build_tools.targets import build_op_library, build_tests

TARGETS = {"ops": build_op_library, "tests": build_tests}


def main() -> int:
    """Builds the target that the command line names; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m build_tools", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--sanitize", action="store_true", help="with ASan and UBSan")
    arguments = parser.parse_args()
    try:
        TARGETS[arguments.target](arguments.output, arguments.sanitize)
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
