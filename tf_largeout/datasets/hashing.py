"""Hashes that decide who belongs to which split."""

import hashlib
from collections.abc import Iterable

import numpy as np


def md5_uint64(texts: Iterable[str]) -> np.ndarray:
    """uint64 `[len(texts)]`: the first 8 bytes of the md5 of each text in UTF-8."""
    digests = b"".join(
        hashlib.md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).digest()[:8]
        for text in texts
    )
    return np.frombuffer(digests, ">u8").astype(np.uint64)


def is_tenth(names: Iterable[str]) -> np.ndarray:
    """bool: whose md5, as a number, is a multiple of 10; these are the test split."""
    return md5_uint64(names) % np.uint64(10) == 0
