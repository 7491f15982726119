"""Runs Bazel on BUILD, offline: `python -m build_tools.bazel`.

The folder `build_tools/bazel_workspace` is the workspace of a custom server that contains the
ops.
"""

import os
import pathlib
import shutil
import sys

from build_tools import tensorflow_install
from build_tools.cmake import ROOT, run
from build_tools.errors import BuildError

WORKSPACE = ROOT / "build_tools" / "bazel_workspace"
OUTPUT = ROOT / "build" / "bazel"
TESTS = ["@tf_largeout//:core_test", "@tf_largeout//:emulated_gpu_test"]
TARGETS = ["@tf_largeout//:tf_largeout", "@host//:host"]
LIBRARY = OUTPUT / "links-bin/external/tf_largeout/tf_largeout/ops/_largeout_ops.so"
HOST = OUTPUT / "links-bin/external/host/host"

_RULES = pathlib.Path("/usr/share/bazel/rules")
_PACKAGES = ["bazel-bootstrap", "bazel-platforms", "bazel-rules-java", "bazel-rules-proto"]
_VERSION = 4


def missing() -> str | None:
    """Returns what is missing on this machine for a build with Bazel, or None."""
    if shutil.which(f"bazel-{_VERSION}") is None:
        return f"bazel-{_VERSION} is not on the PATH"
    absent = [name for name in ("java", "proto") if not (_RULES / name).exists()]
    return f"there is no {_RULES / absent[0]}" if absent else None


def build(jobs: int) -> None:
    """Builds the ops and a program that links them, and runs the C++ tests.

    Args:
        jobs: Number of compilers that run at a time.

    Raises:
        BuildError: If Bazel, its rules or TensorFlow are missing, or the build fails.
    """
    reason = missing()
    if reason is not None:
        raise BuildError(
            f"`make bazel` needs Bazel {_VERSION} of Debian 12 and its rules, but {reason}. "
            f"Install them: apt-get install --no-install-recommends {' '.join(_PACKAGES)}. No "
            "other target needs Bazel."
        )
    os.environ["LARGEOUT_FOLDER"] = str(ROOT)
    os.environ["TENSORFLOW_FOLDER"] = str(tensorflow_install.find_supported().folder)
    # Copied, because Bazel creates a link in it.
    shutil.copytree(WORKSPACE, OUTPUT / "workspace", dirs_exist_ok=True)
    run([*_command(jobs), *TESTS, *TARGETS], "Bazel", OUTPUT / "workspace")


def _command(jobs: int) -> list[str]:
    return [
        "bazel",
        "--batch",  # Otherwise a server continues to run.
        f"--output_user_root={OUTPUT}",
        "test",
        f"--symlink_prefix={OUTPUT}/links-",
        f"--jobs={jobs}",
        "--spawn_strategy=local",  # A sandbox would link 11,000 headers per source file.
        "--sandbox_debug=false",
        "--experimental_repository_disable_download",
        "--output_filter=^//",  # Hides warnings; all code is in external repositories.
        "--test_output=errors",
    ]


def main() -> int:
    """Builds and returns the exit status."""
    try:
        build(len(os.sched_getaffinity(0)))
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
