"""Arrays in the configs of losses and metrics, in compressed form."""

import base64
import zlib

import numpy as np


def pack(values: np.ndarray) -> str:
    """Returns the bytes of an array as compressed text, which JSON can contain."""
    return base64.b64encode(zlib.compress(values.tobytes())).decode()


def unpack(packed: str, dtype: str) -> np.ndarray:
    """Returns the array `[n]` of `dtype` that `pack` was given."""
    return np.frombuffer(zlib.decompress(base64.b64decode(packed)), dtype)
