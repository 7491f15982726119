"""`atomic_file` and `atomic_path`: the old file or the new one, and no other."""

import pytest

from tf_largeout.atomic_file import atomic_file, atomic_path


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with atomic_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [None, OSError("no space")])
def test_a_file_written_by_its_path_is_complete_or_absent(error, tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    (tmp_path / ".unfinished.file.txt").write_text("left by a killed process")
    try:
        with atomic_path(path) as unfinished:
            with open(unfinished, "w") as file:
                file.write("new")
            if error:
                raise error
    except OSError as raised:
        assert raised is error
    assert path.read_text() == ("old" if error else "new")
    assert list(tmp_path.iterdir()) == [path]
