"""Checks of arguments that many classes have, and arrays among them in configs."""

import base64
import itertools
import math
import numbers
import os
import pathlib
import sys
import zlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, overload

import numpy as np

MOST_CLASSES = 2**31 - 2  # The ops store class ids and counts in 32 bits.
_ROWS = (list, tuple, set, frozenset, np.ndarray)
_LIMIT = pathlib.Path("/sys/fs/cgroup/memory.max")  # of a container


def is_whole(value: Any) -> bool:
    """Returns whether `value` is a Python or NumPy integer. Bools do not count."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_real(value: Any) -> bool:
    """Returns whether `value` is a Python or NumPy real number. Bools do not count."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _wrong(name: str, value: Any, expected: str, advice: str = "") -> ValueError:
    return ValueError(
        f"`{name}` must be {expected}. Received: {name}={value!r} (of type "
        f"{type(value).__name__}).{advice}"
    )


@overload
def whole_number(
    name: str,
    value: Any,
    least: int = 1,
    or_none: Literal[False] = False,
    most: int = 2**63 - 1,
) -> int: ...


@overload
def whole_number(
    name: str, value: Any, least: int = 1, *, or_none: Literal[True], most: int = 2**63 - 1
) -> int | None: ...


def whole_number(
    name: str, value: Any, least: int = 1, or_none: bool = False, most: int = 2**63 - 1
) -> int | None:
    """Returns an argument as a 64-bit int, or None with `or_none`; raises a ValueError."""
    if or_none and value is None:
        return None
    if is_whole(value) and least <= value <= most:
        return int(value)
    expected = "a positive integer" if least == 1 else f"an integer of at least {least}"
    if is_whole(value) and value > most:
        expected += f" and at most {most}"
    raise _wrong(name, value, expected + " or None" * or_none)


def real_number(
    name: str,
    value: Any,
    least: float,
    allow_least: bool = True,
    most: float = math.inf,
    allow_most: bool = True,
) -> float:
    """Returns an argument as a finite float in a range; else raises a ValueError."""
    if is_real(value) and math.isfinite(value) and least <= value <= most:
        if (allow_least or value != least) and (allow_most or value != most):
            return float(value)
    bound = f"a number {'of at least' if allow_least else 'above'} {least}"
    if most < math.inf:
        bound += f" and {'at most' if allow_most else 'below'} {most}"
    raise _wrong(name, value, "a finite number" if least == -math.inf else bound)


def too_large_k(k: int, num_classes: int, metric: str, layer: str) -> ValueError:
    """Returns the error for the `k` of a metric that is above the number of classes."""
    return ValueError(
        f"Metric '{metric}' needs the k={k} best classes, but layer '{layer}' has only "
        f"{num_classes} classes. Pass a smaller `k`."
    )


def share(name: str, value: Any) -> float:
    """Returns an argument as a float in (0, 1], or raises a ValueError."""
    if is_real(value) and 0 < value <= 1:
        return float(value)
    raise _wrong(name, value, "a share, a number in (0, 1]")


def int64_or_none(name: str, value: Any) -> int | None:
    """Returns an argument as an int of 64 bits, or None; else raises a ValueError."""
    if value is None:
        return None
    if is_whole(value) and -(2**63) <= value < 2**63:
        return int(value)
    raise _wrong(name, value, "an integer of 64 bits or None")


@overload
def boolean(name: str, value: Any) -> bool: ...


@overload
def boolean(name: str, value: Any, *, or_none: Literal[True]) -> bool | None: ...


def boolean(name: str, value: Any, *, or_none: bool = False) -> bool | None:
    """Returns an argument as a bool, or None with `or_none`; else raises a ValueError.

    Other objects are rejected, because they are often positional arguments in a wrong place.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if or_none and value is None:
        return None
    expected = "True, False or None" if or_none else "True or False"
    raise _wrong(name, value, expected, " Pass other arguments by name.")


def one_of(name: str, value: str, choices: Sequence[str]) -> str:
    """Returns an argument, or raises a ValueError unless it is one of `choices`."""
    if value in choices:
        return value
    raise ValueError(f"`{name}` must be one of {choices}. Received: {name}={value!r}.")


def is_int8(embeddings_dtype: str | None) -> bool:
    """Returns whether the argument of an index or an export is "int8"; it may also be None."""
    if embeddings_dtype not in ("int8", None):
        raise ValueError(
            "`embeddings_dtype` must be 'int8', or None for rows as they are. Received: "
            f"embeddings_dtype={embeddings_dtype!r}."
        )
    return embeddings_dtype is not None


def require_memory(needed: int, what: str, advice: str) -> None:
    """Raises a ValueError if an array of `needed` bytes does not fit into the whole memory.

    The message begins with `what`, such as "The tables take", and ends with the `advice`.
    """
    memory = memory_of_machine()
    if needed > memory:
        raise ValueError(
            f"{what} {needed / 2**30:.1f} GiB, and this machine has "
            f"{memory / 2**30:.1f} GiB. {advice}"
        )


def memory_of_machine() -> int:
    """Returns the memory in bytes that this process can use at most, as far as known."""
    if not hasattr(os, "sysconf"):  # Windows
        return sys.maxsize
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _LIMIT.read_text("ascii").strip() if _LIMIT.exists() else "max"
    return memory if limit == "max" else min(memory, int(limit))


class RowsOfIds(NamedTuple):
    """Lists of ids: `ids`, `[n]`, of all lists in turn, and `lengths`, one per list."""

    ids: np.ndarray
    lengths: np.ndarray


def rows_of_ids(value: Any) -> Any:
    """Converts sets to lists, and uneven lists, sets and sparse matrices to `RowsOfIds`.

    The ids of a sparse matrix are its nonzero columns. Other values are returned as they are.
    """
    if isinstance(value, set | frozenset):
        return list(value)
    if hasattr(value, "tocsr"):
        matrix = value.tocsr()
        rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
        is_there = matrix.data != 0
        ids = matrix.indices[is_there].astype(np.int64)
        return RowsOfIds(ids, np.bincount(rows[is_there], minlength=matrix.shape[0]))
    if str(getattr(value, "dtype", "")) == "object":  # a pandas column of lists
        value = list(value)
    if not isinstance(value, list | tuple) or not all(isinstance(row, _ROWS) for row in value):
        return value
    lengths = [len(row) for row in value]
    if len(set(lengths)) < 2 and not any(isinstance(row, set | frozenset) for row in value):
        return value
    ids = list(itertools.chain.from_iterable(value))
    if any(isinstance(one, _ROWS) for one in ids):
        return value
    ids = np.array(ids, None if ids else int)
    return RowsOfIds(ids, np.array(lengths)) if ids.dtype.kind in "iu" else value


def padded_ids(name: str, value: Any) -> np.ndarray:
    """Returns class ids as an int64 array; lists of different lengths are padded with -1.

    An empty value may have any type. Other values without integers raise a ValueError.
    """
    value = rows_of_ids(value)
    if isinstance(value, RowsOfIds):
        columns = np.arange(max(value.lengths, default=0))
        matrix = np.full((len(value.lengths), len(columns)), -1)
        matrix[columns < value.lengths[:, np.newaxis]] = value.ids
        return matrix
    try:
        ids = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"`{name}` must be an array of class ids. {error}") from error
    if ids.size and ids.dtype.kind not in "iu":
        raise ValueError(
            f"`{name}` must be integer class ids, padded with -1. Received: dtype {ids.dtype} "
            f"and shape {ids.shape}. For a mask over all classes, pass the ids: "
            "[numpy.flatnonzero(row) for row in mask]."
        )
    if ids.dtype == np.uint64:  # ids from 2**63 on would become negative, like padding
        ids = np.minimum(ids, np.uint64(2**63 - 1))
    return ids.astype(np.int64)


def require_width(exclude: Any, num_classes: int) -> None:
    """Raises a ValueError if a SciPy sparse matrix does not have one column per class."""
    if hasattr(exclude, "tocsr") and exclude.shape[-1] != num_classes:
        raise ValueError(
            f"A sparse matrix `exclude` must have one column per class, {num_classes}. "
            f"Received: a {type(exclude).__name__} of shape {tuple(exclude.shape)}. Its "
            "columns must be the class ids of the output layer."
        )


def wrong_exclude(labels: Any, exclude: Any) -> ValueError:
    """Returns the error of `with_exclude` for arguments of shapes that do not match."""
    return ValueError(
        "`exclude` must have a row of class ids for each example: [examples, n] for labels "
        "[examples] or [examples, max_labels], and [batch, time, n] for sequences. "
        f"Received: labels of shape {labels}, and exclude of shape {exclude}. "
        "For one excluded class per example, pass exclude[:, numpy.newaxis]."
    )


def pack(values: np.ndarray) -> str:
    """Returns the bytes of an array as compressed text, which JSON can contain."""
    return base64.b64encode(zlib.compress(values.tobytes())).decode()


def unpack(packed: str, dtype: str) -> np.ndarray:
    """Returns the array `[n]` of `dtype` that `pack` was given."""
    return np.frombuffer(zlib.decompress(base64.b64decode(packed)), dtype)


def checked_class_weights(class_weights: Any) -> np.ndarray:
    """Returns one weight per class as float32 `[num_classes]`, or raises a ValueError."""
    weights = np.asarray(class_weights)
    if weights.ndim != 1 or weights.size == 0 or weights.dtype.kind not in "iuf":
        raise ValueError(
            "`class_weights` must be a list of numbers, one per class. Received an array of "
            f"shape {weights.shape} and dtype {weights.dtype}. (A dict of weights is the "
            "`class_weight` of `fit`.)"
        )
    weights = weights.astype("<f4")
    if not np.all(np.isfinite(weights)) or weights.min() < 0 or weights.max() == 0:
        raise ValueError(
            "`class_weights` must be finite, at least 0 and not all 0. Received weights from "
            f"{weights.min()} to {weights.max()}."
        )
    return weights


class CrossEntropyArguments:
    """The arguments of the cross entropy of a softmax, of all backends."""

    def __init__(
        self,
        label_smoothing: float = 0.0,
        log_partition_penalty: float = 0.0,
        class_weights: Any = None,
    ) -> None:
        self.label_smoothing = real_number(
            "label_smoothing", label_smoothing, least=0, most=1, allow_most=False
        )
        self.log_partition_penalty = real_number(
            "log_partition_penalty", log_partition_penalty, least=0
        )
        self.class_weights = (
            None if class_weights is None else checked_class_weights(class_weights)
        )

    def require_weight_per_class(self, num_classes: int) -> None:
        """Raises a ValueError if there are class weights, but not one per class."""
        if self.class_weights is not None and len(self.class_weights) != num_classes:
            raise ValueError(
                f"`class_weights` must have one weight for each of the {num_classes} classes. "
                f"Received: {len(self.class_weights)} weights."
            )

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments, with the class weights in compressed form."""
        weights = self.class_weights
        return {
            "label_smoothing": self.label_smoothing,
            "log_partition_penalty": self.log_partition_penalty,
            "class_weights": None if weights is None else pack(weights),
        }
