"""Downloads of packages, by a Python program in place of apt-get."""

import hashlib
import sys

import pytest

from lab.corpora.packages import Package
from tf_largeout.datasets import SourceFileError

DOWNLOAD = "open('a.deb', 'wb').write(b'a package')"


def package(program):
    sha256 = hashlib.sha256(b"a package").hexdigest()
    return Package("a.deb", sha256, (sys.executable, "-c", program), "Debian 12")


def test_a_missing_package_is_downloaded_once(tmp_path):
    path = package(DOWNLOAD).ensure(tmp_path / "manual")
    assert path.read_bytes() == b"a package" and list(path.parent.iterdir()) == [path]
    assert package("raise SystemExit(1)").ensure(tmp_path / "manual") == path


@pytest.mark.parametrize(
    "program, message",
    [("raise SystemExit(1)", "is missing"), (DOWNLOAD.replace("a pack", "b pack"), "damaged")],
)
def test_a_failed_download_says_how_to_get_the_package(tmp_path, program, message):
    with pytest.raises(SourceFileError, match=f"{message}.*It is a package of Debian 12"):
        package(program).ensure(tmp_path)
