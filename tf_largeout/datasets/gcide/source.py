"""The source file of gcide."""

from tf_largeout.datasets.debian_package import download_command
from tf_largeout.datasets.source_file import SourceFile

_PACKAGE = "dict-gcide=0.48.5+nmu2"

PACKAGE = SourceFile(
    name="dict-gcide_0.48.5+nmu2_all.deb",
    num_bytes=14_800_692,
    sha256="7b0af5cfde3cbdef5e9d6e78f92ec335ced7c2790f37a40f49bebc6f7347ac0f",
    command=download_command(_PACKAGE),
    by_hand=(
        f"It is a package of Debian 12. Download it with `apt-get update && apt-get download "
        f"{_PACKAGE}` on Debian 12, or download that file from Debian's archive or its "
        f"snapshot archive."
    ),
)
