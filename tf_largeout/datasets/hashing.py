"""Hashes that assign examples to splits."""

import hashlib
from collections.abc import Iterable

import numpy as np


def md5_uint64(texts: Iterable[str]) -> np.ndarray:
    """Returns uint64 `[len(texts)]`: the first 8 bytes of the md5 of each text in UTF-8."""
    digests = b"".join(
        hashlib.md5(text.encode("utf-8", "surrogateescape"), usedforsecurity=False).digest()[:8]
        for text in texts
    )
    return np.frombuffer(digests, ">u8").astype(np.uint64)


def is_tenth(names: Iterable[str]) -> np.ndarray:
    """Returns bool `[len(names)]`: whether each name's `md5_uint64` is a multiple of 10."""
    return md5_uint64(names) % np.uint64(10) == 0
