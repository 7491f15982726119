import errno
import hashlib
import os
import sys

import pytest

from tf_largeout.datasets import SourceFileError
from tf_largeout.datasets.source_file import SourceFile

CONTENT = b"a source " * 1000


def source(program, **fields):
    """Returns a source that the Python program `program` downloads."""
    pins = {"num_bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}
    command = (sys.executable, "-c", program)
    return SourceFile(
        **{"name": "a.bin", "command": command, "by_hand": "Get it by hand."} | pins | fields
    )


DOWNLOAD = "open('a.bin', 'wb').write(b'a source ' * 1000)"


def test_a_missing_file_is_downloaded_once(tmp_path):
    path = source(DOWNLOAD).ensure(tmp_path / "manual")
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
        ("raise SystemExit('no such package')", "status 1 and the output:\nno such package"),
        ("pass", "could not be downloaded"),
        (DOWNLOAD.replace("1000", "10"), "truncated: expected 9,000 bytes, found 90"),
        (
            DOWNLOAD.replace("1000", "1001"),
            "a different file: expected 9,000 bytes, found 9,009",
        ),
        (DOWNLOAD.replace("a source ", "b source "), "damaged: expected sha256 "),
    ],
)
def test_a_failed_download_leaves_no_files_and_explains_the_remedy(tmp_path, program, message):
    with pytest.raises(SourceFileError) as raised:
        source(program).ensure(tmp_path)
    assert message in str(raised.value)
    assert f"Get it by hand. Copy the file to {tmp_path}" in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_a_download_without_progress_prints_one_line(tmp_path, capsys):
    with pytest.raises(SourceFileError, match="status 1.*output:\n\nWithout network access"):
        source("import time; time.sleep(0.5); raise SystemExit(1)").ensure(tmp_path)
    assert capsys.readouterr().err.count("Downloading a.bin") <= 2  # at the start and the end


def test_a_missing_program_is_reported_with_instructions(tmp_path):
    with pytest.raises(SourceFileError, match="'apt-nowhere' is not installed. Get it by hand"):
        source("", command=("apt-nowhere", "download")).ensure(tmp_path)


def test_a_damaged_file_that_is_there_is_refused_and_left_alone(tmp_path):
    (tmp_path / "a.bin").write_bytes(CONTENT[:100])
    with pytest.raises(SourceFileError, match="truncated"):
        source(DOWNLOAD).ensure(tmp_path)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT[:100]


def test_a_folder_that_cannot_be_created_is_an_error_that_names_the_argument(tmp_path):
    (tmp_path / "a file").touch()
    with pytest.raises(SourceFileError) as raised:
        source(DOWNLOAD).ensure(tmp_path / "a file" / "manual")
    for part in ("a file/manual/a.bin", "`data_dir`", "TFDS_DATA_DIR", "Get it by hand."):
        assert part in str(raised.value)


@pytest.mark.parametrize("function", ["mkdir", "replace"])
def test_an_unwritable_folder_is_reported(tmp_path, monkeypatch, function):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, function, refuse)
    with pytest.raises(
        SourceFileError, match="Read-only file system.*9,000 bytes of free space"
    ):
        source(DOWNLOAD).ensure(tmp_path / "manual")


def test_an_unreadable_source_is_reported(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    path = source(DOWNLOAD).ensure(tmp_path)
    monkeypatch.setattr(type(path), "open", refuse)
    with pytest.raises(SourceFileError, match="Permission denied"):
        source(DOWNLOAD).ensure(tmp_path)
