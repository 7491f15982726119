"""The source file of linux_callees."""

from tf_largeout.datasets.debian_package import download_command
from tf_largeout.datasets.source_file import SourceFile

_PACKAGE = "linux-source-6.1=6.1.176-1"

PACKAGE = SourceFile(
    name="linux-source-6.1_6.1.176-1_all.deb",
    num_bytes=139_131_140,
    sha256="9305d1a151b8e83dcb88aa11361e7b9513f0c252bdf7f5647e4542762d99c094",
    command=download_command(_PACKAGE),
    by_hand=(
        f"It is a package of Debian 12. Download it with `apt-get update && apt-get download "
        f"{_PACKAGE}` on Debian 12, or download that file from Debian's archive or its "
        f"snapshot archive."
    ),
)
