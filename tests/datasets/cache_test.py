import dataclasses
import errno
import logging
import zipfile

import numpy as np
import pytest

from tf_largeout.datasets import array_file
from tf_largeout.datasets.cache import cached


@dataclasses.dataclass
class Numbers:
    values: np.ndarray

    def to_arrays(self):
        return {"values": self.values}

    @classmethod
    def from_arrays(cls, arrays):
        return cls(arrays["values"])


class Parser:
    """Counts its calls."""

    calls = 0

    def __call__(self):
        self.calls += 1
        return Numbers(np.arange(1000))


def test_what_is_parsed_once_is_read_afterwards(tmp_path):
    parse, path = Parser(), tmp_path / "deep" / "numbers.npz"
    for _ in range(3):
        np.testing.assert_array_equal(cached(path, Numbers, parse).values, np.arange(1000))
    assert parse.calls == 1 and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "without an array"])
def test_a_damaged_cache_is_made_anew(tmp_path, damage):
    parse, path = Parser(), tmp_path / "numbers.npz"
    cached(path, Numbers, parse)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "without an array":
        np.savez(path, other=np.arange(3))
    else:
        path.write_bytes(
            {"truncated": content[:-1000], "flipped": content, "empty": b""}[damage]
        )
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


def test_whichever_byte_is_damaged_the_object_is_the_one_that_was_parsed(tmp_path):
    parse, path = Parser(), tmp_path / "numbers.npz"
    cached(path, Numbers, parse)
    sound = path.read_bytes()
    damaged_ones = 0
    for position in (*range(60), *range(len(sound) - 90, len(sound))):
        for mask in (1, 64):
            content = bytearray(sound)
            content[position] ^= mask
            path.write_bytes(content)
            calls = parse.calls
            np.testing.assert_array_equal(cached(path, Numbers, parse).values, np.arange(1000))
            damaged_ones += parse.calls - calls
    assert damaged_ones > 150


def test_a_header_that_promises_more_than_there_is_allocates_nothing(tmp_path):
    path = tmp_path / "numbers.npz"
    np.savez(path, values=np.arange(1000))
    content = path.read_bytes().replace(b"(1000,), }        ", b"(1000000000000,), }")
    assert content.count(b"(1000000000000,)") == 1
    path.write_bytes(content)
    with pytest.raises(array_file.DamagedFileError):
        array_file.read_arrays(path)


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_what_is_no_damage_is_raised(tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    cached(tmp_path / "numbers.npz", Numbers, Parser())
    monkeypatch.setattr(zipfile.ZipFile, "read", fail)
    with pytest.raises(error):
        cached(tmp_path / "numbers.npz", Numbers, Parser())


def test_a_mistake_of_the_program_is_not_taken_for_a_damaged_file(tmp_path, monkeypatch):
    cached(tmp_path / "numbers.npz", Numbers, Parser())
    monkeypatch.setattr(Numbers, "from_arrays", lambda arrays: arrays.no_such_method())
    with pytest.raises(AttributeError, match="no_such_method"):
        cached(tmp_path / "numbers.npz", Numbers, Parser())


def test_where_nothing_can_be_written_the_way_out_is_said_before_the_parsing(tmp_path, caplog):
    (tmp_path / "a file").touch()
    said = []

    def parse():
        said.extend(record.getMessage() for record in caplog.records)
        return Numbers(np.arange(1000))

    with caplog.at_level(logging.WARNING):
        numbers = cached(tmp_path / "a file" / "parsed" / "numbers.npz", Numbers, parse)
    np.testing.assert_array_equal(numbers.values, np.arange(1000))
    assert len(said) == len(caplog.records) == 1
    for part in (
        "will not be kept",
        "a file/parsed/numbers.npz",
        "`data_dir`",
        "TFDS_DATA_DIR",
    ):
        assert part in said[0]


def test_a_disk_that_is_full_costs_the_cache_and_not_what_was_parsed(
    tmp_path, monkeypatch, caplog
):
    def fill(file, **_):
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", fill)
    numbers = cached(tmp_path / "numbers.npz", Numbers, Parser())
    np.testing.assert_array_equal(numbers.values, np.arange(1000))
    (record,) = caplog.records
    assert "was not kept" in record.getMessage() and "No space left" in record.getMessage()
    assert not list(tmp_path.iterdir())


def test_a_folder_in_the_place_of_the_cache_is_said(tmp_path, caplog):
    (tmp_path / "numbers.npz").mkdir()
    assert len(cached(tmp_path / "numbers.npz", Numbers, Parser()).values) == 1000
    assert ["Is a directory" in record.getMessage() for record in caplog.records] == [True] * 2
