"""Downloads, from files in place of the network."""

import hashlib

import pytest

from tf_largeout.datasets.sources import SourceFile, SourceFileError

CONTENT = b"a source " * 1000


@pytest.fixture
def source(tmp_path):
    """A source that is published in another folder."""
    published = tmp_path / "published" / "a.bin"
    published.parent.mkdir()
    published.write_bytes(CONTENT)
    return SourceFile(published.as_uri(), hashlib.sha256(CONTENT).hexdigest())


def test_a_missing_or_damaged_file_is_downloaded_once(tmp_path, source):
    for _ in range(2):
        path = source.ensure(tmp_path / "manual")
        assert path.read_bytes() == CONTENT and list(path.parent.iterdir()) == [path]
        path.write_bytes(CONTENT[:100])
    source.ensure(tmp_path / "manual")
    (tmp_path / "published" / "a.bin").unlink()
    assert source.ensure(tmp_path / "manual").read_bytes() == CONTENT


@pytest.mark.parametrize("content", [None, CONTENT[:-1]])
def test_a_failed_download_explains_the_remedy(tmp_path, source, content):
    published = tmp_path / "published" / "a.bin"
    published.unlink() if content is None else published.write_bytes(content)
    with pytest.raises(SourceFileError) as raised:
        source.ensure(tmp_path / "manual")
    for part in (f"{tmp_path}/manual/a.bin is missing", source.url, source.sha256):
        assert part in str(raised.value)


def test_a_folder_that_cannot_be_created_is_an_error_that_names_the_argument(tmp_path, source):
    (tmp_path / "a file").touch()
    with pytest.raises(SourceFileError, match="a file/manual/a.bin.*`data_dir`.*TFDS_DATA_DIR"):
        source.ensure(tmp_path / "a file" / "manual")
