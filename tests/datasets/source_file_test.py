import errno
import hashlib
import os
import sys

import pytest

from tf_largeout.datasets import SourceFileError
from tf_largeout.datasets.source_file import SourceFile

CONTENT = b"a source " * 1000


def source(program, **fields):
    """A source that the Python program `program` brings."""
    pins = {"num_bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}
    command = (sys.executable, "-c", program)
    return SourceFile(
        **{"name": "a.bin", "command": command, "by_hand": "Get it by hand."} | pins | fields
    )


BRING = "open('a.bin', 'wb').write(b'a source ' * 1000)"


def test_a_missing_file_is_fetched_once(tmp_path):
    path = source(BRING).ensure(tmp_path / "manual")
    assert path.read_bytes() == CONTENT
    assert source("raise SystemExit(1)").ensure(tmp_path / "manual") == path
    assert list(path.parent.iterdir()) == [path]


def test_no_other_user_can_write_where_the_program_runs(tmp_path):
    see = "import os; print('mode', oct(os.stat('.').st_mode & 0o777)); raise SystemExit(1)"
    with pytest.raises(SourceFileError, match="mode 0o700"):
        source(see).ensure(tmp_path)


@pytest.mark.parametrize(
    "program, message",
    [
        ("raise SystemExit('no such package')", "status 1 and said:\nno such package"),
        ("pass", "could not be fetched"),
        (BRING.replace("1000", "10"), "truncated: expected 9,000 bytes, found 90"),
        (BRING.replace("1000", "1001"), "another file: expected 9,000 bytes, found 9,009"),
        (BRING.replace("a source ", "b source "), "damaged: expected sha256 "),
    ],
)
def test_a_fetch_that_fails_leaves_nothing_and_says_the_way_out(tmp_path, program, message):
    with pytest.raises(SourceFileError) as raised:
        source(program).ensure(tmp_path)
    assert message in str(raised.value)
    assert f"Get it by hand. Put the file at {tmp_path}" in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_a_machine_without_the_program_gets_the_way_by_hand(tmp_path):
    with pytest.raises(SourceFileError, match="there is no 'apt-nowhere' .* Get it by hand"):
        source("", command=("apt-nowhere", "download")).ensure(tmp_path)


def test_a_damaged_file_that_is_there_is_refused_and_left_alone(tmp_path):
    (tmp_path / "a.bin").write_bytes(CONTENT[:100])
    with pytest.raises(SourceFileError, match="truncated"):
        source(BRING).ensure(tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT[:100]


def test_a_folder_that_cannot_be_made_is_an_error_that_says_where_to_point(tmp_path):
    (tmp_path / "a file").touch()
    with pytest.raises(SourceFileError) as raised:
        source(BRING).ensure(tmp_path / "a file" / "manual")
    for part in ("a file/manual/a.bin", "`data_dir`", "TFDS_DATA_DIR", "Get it by hand."):
        assert part in str(raised.value)


@pytest.mark.parametrize("function", ["mkdir", "replace"])
def test_a_folder_that_cannot_be_written_is_an_error_that_says_so(
    tmp_path, monkeypatch, function
):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, function, refuse)
    with pytest.raises(SourceFileError, match="Read-only file system.*9,000 bytes of room"):
        source(BRING).ensure(tmp_path / "manual")


def test_a_source_that_cannot_be_read_is_an_error_that_says_so(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    path = source(BRING).ensure(tmp_path)
    monkeypatch.setattr(type(path), "open", refuse)
    with pytest.raises(SourceFileError, match="Permission denied"):
        source(BRING).ensure(tmp_path)
