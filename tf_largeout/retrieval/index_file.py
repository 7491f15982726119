"""The file format of an index: settings and named arrays with checksums, read in place.

A file consists of `MAGIC`, three little-endian uint32 (version, length of the header, CRC-32 of
the header), the header as JSON, and the arrays. Each array starts at the next multiple of 64
bytes.
"""

import json
import math
import os
import struct
import zlib
from typing import Any

import numpy as np

from tf_largeout.atomic_file import atomic_file

MAGIC, VERSION = b"TFLOIDX\n", 1
_PREFIX = struct.Struct("<8sIII")
_ALIGNMENT = 64  # bytes; TensorFlow can read memory with this alignment in place


def write(
    path: str | os.PathLike[str],
    kind: str,
    settings: dict[str, Any],
    arrays: dict[str, np.ndarray],
) -> None:
    """Writes an `atomic_file`; a process that has loaded the old file keeps its content.

    `kind` is the name of the index class. JSON must support the `settings`.
    """
    raw = {
        name: np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        for name, array in arrays.items()
    }
    described = [
        {"name": name, "dtype": one.dtype.str, "shape": one.shape, "crc": zlib.crc32(raw[name])}
        for name, one in arrays.items()
    ]
    header = json.dumps({"kind": kind, "settings": settings, "arrays": described}).encode()
    with atomic_file(path) as file:
        file.write(_PREFIX.pack(MAGIC, VERSION, len(header), zlib.crc32(header)))
        file.write(header)
        for content in raw.values():
            file.write(bytes(-file.tell() % _ALIGNMENT))
            file.write(content)


def read(
    path: str | os.PathLike[str], kind: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Reads `(settings, arrays)` from a file; the errors are those of `Index.load`.

    The arrays are mapped from the file. Processes that read the same file share its memory, and
    writes to an array stay in this process.
    """
    name = os.fspath(path)
    size = os.path.getsize(path)
    if size < _PREFIX.size:
        raise ValueError(f"{name!r} is not an index file: it has only {size} bytes.")
    data = np.memmap(path, np.uint8, mode="c")
    magic, version, length, crc = _PREFIX.unpack(data[: _PREFIX.size].tobytes())
    if magic != MAGIC:
        raise ValueError(
            f"{name!r} is not an index file. Received a file that begins with {magic!r}: pass "
            "a file that `save` of an index wrote."
        )
    if version != VERSION:
        raise ValueError(
            f"{name!r} must be an index file of version {VERSION}. Received version {version}: "
            "build and save the index again, or install the tf_largeout version that wrote it."
        )
    end = _PREFIX.size + length
    text = data[_PREFIX.size : end].tobytes()
    if len(text) != length or zlib.crc32(text) != crc:
        raise _damaged(name, "header")
    header = json.loads(text)
    if header["kind"] != kind:
        raise ValueError(
            f"{name!r} must be a file of {kind}. Received a file of {header['kind']}: load it "
            f"with {header['kind']}.load."
        )
    arrays = {}
    for described in header["arrays"]:
        dtype, shape = np.dtype(described["dtype"]), tuple(described["shape"])
        begin = end + -end % _ALIGNMENT
        end = begin + dtype.itemsize * math.prod(shape)
        part = data[begin:end]
        if len(part) != end - begin or zlib.crc32(part.data) != described["crc"]:
            raise _damaged(name, f"array {described['name']!r}")
        arrays[described["name"]] = part.view(dtype).reshape(shape)
    return header["settings"], arrays


def _damaged(name: str, part: str) -> ValueError:
    return ValueError(
        f"{name!r} is damaged or truncated: its {part} does not match its checksum. Copy the "
        "file again, or build and save the index again."
    )
