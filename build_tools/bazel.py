"""`python -m build_tools.bazel`: runs Bazel on BUILD, offline, as the build of a server would.

What it takes is in `build_tools/bazel_workspace`: the workspace of a custom server.
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
    """What a build by Bazel lacks on this machine, or None."""
    if shutil.which(f"bazel-{_VERSION}") is None:
        return f"bazel-{_VERSION} is not on the PATH"
    absent = [name for name in ("java", "proto") if not (_RULES / name).exists()]
    return f"there is no {_RULES / absent[0]}" if absent else None


def build(jobs: int) -> None:
    """Builds the ops, and a program that they are linked into, and runs the C++ tests.

    Args:
        jobs: how many compilers run at a time.

    Raises:
        BuildError: if Bazel, its rules or TensorFlow are missing, or it fails.
    """
    lacks = missing()
    if lacks is not None:
        raise BuildError(
            f"`make bazel` runs the Bazel {_VERSION} of Debian 12 and its rules, and {lacks}. "
            f"Install them: apt-get install --no-install-recommends {' '.join(_PACKAGES)}. No "
            "other target needs Bazel."
        )
    os.environ["LARGEOUT_FOLDER"] = str(ROOT)
    os.environ["TENSORFLOW_FOLDER"] = str(tensorflow_install.find_supported().folder)
    # A copy, as Bazel puts a link into it.
    shutil.copytree(WORKSPACE, OUTPUT / "workspace", dirs_exist_ok=True)
    os.chdir(OUTPUT / "workspace")
    run([*_command(jobs), *TESTS, *TARGETS], "Bazel")


def _command(jobs: int) -> list[str]:
    return [
        "bazel",
        "--batch",  # else a server goes on running
        f"--output_user_root={OUTPUT}",
        "test",
        f"--symlink_prefix={OUTPUT}/links-",
        f"--jobs={jobs}",
        "--spawn_strategy=local",  # a sandbox links 11,000 headers of TensorFlow anew a file
        "--sandbox_debug=false",
        "--experimental_repository_disable_download",
        "--output_filter=^//",  # warnings of what is no external repository: none
        "--test_output=errors",
    ]


def main() -> int:
    """Builds; returns the exit status."""
    try:
        build(len(os.sched_getaffinity(0)))
    except BuildError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
