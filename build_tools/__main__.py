"""`python -m build_tools TARGET OUTPUT`: builds the op library or a program of its tests."""

import argparse
import pathlib
import sys
from typing import Any

from build_tools.errors import BuildError
from build_tools.targets import (
    build_cuda_check,
    build_emulated_check,
    build_emulated_gpu,
    build_op_library,
    build_tests,
)

# The function of each target, its option, and what the option means.
TARGETS: dict[str, Any] = {
    "ops": (build_op_library, "sanitize", "with ASan and UBSan"),
    "tests": (build_tests, "sanitize", "with ASan and UBSan"),
    "emulated-check": (build_emulated_check, "sanitize", "with ASan and UBSan"),
    "emulated-gpu": (build_emulated_gpu, "sanitize", "with ASan and UBSan"),
    "cuda-check": (build_cuda_check, "local", "for the GPUs of this machine alone"),
}


def main() -> int:
    """Builds the target that the command line names; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m build_tools", description=__doc__)
    targets = parser.add_subparsers(dest="target", metavar="TARGET", required=True)
    for name, (build, option, meaning) in TARGETS.items():
        target = targets.add_parser(name, help=build.__doc__.splitlines()[0])
        target.add_argument("output", type=pathlib.Path)
        target.add_argument(f"--{option}", action="store_true", help=meaning)
    arguments = parser.parse_args()
    build, option, _ = TARGETS[arguments.target]
    try:
        build(arguments.output, **{option: getattr(arguments, option)})
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
