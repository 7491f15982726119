import dataclasses

import numpy as np
import pytest

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
