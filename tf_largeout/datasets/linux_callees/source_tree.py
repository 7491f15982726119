"""Streams the files of the kernel's source tree from its Debian package.

The package installs a tar archive of the tree.
"""

import hashlib
import os
import tarfile
from collections.abc import Iterator

from tf_largeout.datasets.debian_package import installed_files, tar_stream
from tf_largeout.datasets.errors import SourceFileError


def source_files(
    path: str | os.PathLike[str], suffixes: tuple[str, ...] = (".c",)
) -> Iterator[tuple[str, bytes]]:
    """Yields the files of the source tree in a `linux-source-*.deb` that have given suffixes.

    Symbolic links are skipped, because their targets are in the tree too.

    Args:
        path: Path of the package.
        suffixes: Suffixes of the file names.

    Yields:
        `(path, content)`: the path relative to the root of the source tree, and bytes.

    Raises:
        SourceFileError: If the file is damaged or truncated, or is a different package.
    """
    num_files = 0
    with installed_files(path, "Parsing C files", "the kernel source") as outer:
        for member in outer:
            name = os.path.basename(member.name)
            is_tree = name.startswith("linux-source-") and name.endswith(".tar.xz")
            if is_tree and member.isfile():
                with tar_stream(outer.extractfile(member)) as tree:
                    for file in _members(tree, suffixes):
                        num_files += 1
                        yield file
    if not num_files:
        raise SourceFileError(
            f"Expected a linux-source-*.tar.xz with {', '.join(suffixes)} files in {path}."
        )


def _members(tree: tarfile.TarFile, suffixes: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    for member in tree:
        content = tree.extractfile(member) if member.isfile() else None
        if content and member.name.endswith(suffixes):
            _, _, below_top = member.name.removeprefix("./").partition("/")
            yield below_top, content.read()


def is_test(path: str) -> bool:
    """Returns whether a file is in the test split: `md5(path) % 10 == 0`."""
    digest = hashlib.md5(path.encode("utf-8", "surrogateescape"), usedforsecurity=False)
    return int(digest.hexdigest(), 16) % 10 == 0
