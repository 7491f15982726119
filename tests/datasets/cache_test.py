import dataclasses
import errno
import zipfile

import numpy as np
import pytest

from tf_largeout.datasets.corpus import Storable, cached


@dataclasses.dataclass(frozen=True)
class Numbers(Storable):
    values: np.ndarray


class Parser:
    """Counts its calls."""

    calls = 0

    def __call__(self):
        self.calls += 1
        return Numbers(np.arange(1000))


def test_the_source_is_parsed_once_and_then_read_from_the_cache(tmp_path):
    parse, path = Parser(), tmp_path / "deep" / "numbers.npz"
    for _ in range(3):
        np.testing.assert_array_equal(cached(path, Numbers, parse).values, np.arange(1000))
    assert parse.calls == 1 and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_a_damaged_cache_is_replaced(tmp_path, damage):
    parse, path = Parser(), tmp_path / "numbers.npz"
    cached(path, Numbers, parse)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes({"truncated": content[:-1000], "flipped": content, "empty": b""}[damage])
    np.testing.assert_array_equal(cached(path, Numbers, parse).values, np.arange(1000))
    assert parse.calls == 2
    cached(path, Numbers, parse)
    assert parse.calls == 2


def test_a_parse_or_write_that_fails_leaves_no_cache(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cached(tmp_path / "numbers.npz", Numbers, fail)
    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(KeyboardInterrupt):
        cached(tmp_path / "numbers.npz", Numbers, Parser())
    assert not list(tmp_path.iterdir())


def test_the_result_is_correct_whichever_byte_is_damaged(tmp_path):
    parse, path = Parser(), tmp_path / "numbers.npz"
    cached(path, Numbers, parse)
    intact = path.read_bytes()
    num_parsed = 0
    for position in (*range(60), *range(len(intact) - 90, len(intact))):
        for mask in (1, 64):
            content = bytearray(intact)
            content[position] ^= mask
            path.write_bytes(content)
            calls = parse.calls
            np.testing.assert_array_equal(cached(path, Numbers, parse).values, np.arange(1000))
            num_parsed += parse.calls - calls
    assert num_parsed > 100  # The other bytes are not used.


def test_a_header_with_too_large_a_shape_does_not_allocate_memory(tmp_path):
    path = tmp_path / "numbers.npz"
    np.savez(path, values=np.arange(1000))
    content = path.read_bytes().replace(b"(1000,), }        ", b"(1000000000000,), }")
    assert content.count(b"(1000000000000,)") == 1
    path.write_bytes(content)
    parse = Parser()
    assert len(cached(path, Numbers, parse).values) == 1000 and parse.calls == 1


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_errors_other_than_damaged_files_are_raised(tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    cached(tmp_path / "numbers.npz", Numbers, Parser())
    monkeypatch.setattr(zipfile.ZipFile, "testzip", fail)
    with pytest.raises(error):
        cached(tmp_path / "numbers.npz", Numbers, Parser())


def test_a_bug_is_not_reported_as_a_damaged_file(tmp_path, monkeypatch):
    cached(tmp_path / "numbers.npz", Numbers, Parser())
    monkeypatch.setattr(Numbers, "from_arrays", lambda arrays: arrays.no_such_method())
    with pytest.raises(AttributeError, match="no_such_method"):
        cached(tmp_path / "numbers.npz", Numbers, Parser())


def test_an_unwritable_folder_is_reported(tmp_path, caplog):
    (tmp_path / "a file").touch()
    numbers = cached(tmp_path / "a file" / "parsed" / "numbers.npz", Numbers, Parser())
    np.testing.assert_array_equal(numbers.values, np.arange(1000))
    (record,) = caplog.records
    for part in ("was not stored", "a file/parsed/numbers.npz", "`data_dir`", "TFDS_DATA_DIR"):
        assert part in record.getMessage()


def test_a_full_disk_does_not_lose_the_parsed_object(tmp_path, monkeypatch, caplog):
    def fill(file, **_):
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", fill)
    numbers = cached(tmp_path / "numbers.npz", Numbers, Parser())
    np.testing.assert_array_equal(numbers.values, np.arange(1000))
    (record,) = caplog.records
    assert "was not stored" in record.getMessage() and "No space left" in record.getMessage()
    assert not list(tmp_path.iterdir())


def test_a_folder_at_the_path_of_the_cache_is_reported(tmp_path, caplog):
    (tmp_path / "numbers.npz").mkdir()
    assert len(cached(tmp_path / "numbers.npz", Numbers, Parser()).values) == 1000
    assert ["Is a directory" in record.getMessage() for record in caplog.records] == [True] * 2
