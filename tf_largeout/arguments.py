"""Checks of arguments that many classes take."""

import math
import numbers
from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np

MOST_CLASSES = 2**31 - 2  # ids and counts of classes are 32 bits wide in the ops


def is_whole(value: Any) -> bool:
    """Whether `value` is an integer of Python's or numpy's; a bool is none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_real(value: Any) -> bool:
    """Whether `value` is a real number of Python's or numpy's; a bool is none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


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
    """The argument `name` as an int.

    Args:
        name: Name of the argument, for the message.
        value: What was passed.
        least: The smallest number that is accepted.
        or_none: Whether None is accepted too, and returned.
        most: The largest number that is accepted; by default that of 64 bits.

    Raises:
        ValueError: If `value` is something else, too small or too large.
    """
    if or_none and value is None:
        return None
    if is_whole(value) and least <= value <= most:
        return int(value)
    expected = "a positive integer" if least == 1 else f"an integer of at least {least}"
    if is_whole(value) and value > most:
        expected += f" and at most {most}"
    raise ValueError(
        f"`{name}` must be {expected}{' or None' if or_none else ''}. "
        f"Received: {name}={value!r} (of type {type(value).__name__})."
    )


def real_number(name: str, value: Any, least: float, allow_least: bool = True) -> float:
    """The argument `name` as a float.

    Args:
        name: Name of the argument, for the message.
        value: What was passed.
        least: The smallest number that is accepted, or else the bound; `-math.inf` for none.
        allow_least: Whether `least` itself is accepted.

    Raises:
        ValueError: If `value` is no number, not finite, or too small.
    """
    if is_real(value):
        if math.isfinite(value) and (value > least or (allow_least and value == least)):
            return float(value)
    bound = f"a number {'of at least' if allow_least else 'above'} {least}"
    raise ValueError(
        f"`{name}` must be {'a finite number' if least == -math.inf else bound}. "
        f"Received: {name}={value!r} (of type {type(value).__name__})."
    )


def seed_or_none(name: str, value: Any) -> int | None:
    """The argument `name` as an int of 64 bits, or None.

    Raises:
        ValueError: If it is something else.
    """
    if value is None:
        return None
    if is_whole(value) and -(2**63) <= value < 2**63:
        return int(value)
    raise ValueError(
        f"`{name}` must be an integer of 64 bits or None. "
        f"Received: {name}={value!r} (of type {type(value).__name__})."
    )


@overload
def boolean(name: str, value: Any) -> bool: ...


@overload
def boolean(name: str, value: Any, *, or_none: Literal[True]) -> bool | None: ...


def boolean(name: str, value: Any, *, or_none: bool = False) -> bool | None:
    """The argument `name`, where what stands in its place by mistake must not count as True.

    Raises:
        ValueError: If it is neither True nor False; nor None, if `or_none`.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if or_none and value is None:
        return None
    expected = "True, False or None" if or_none else "True or False"
    raise ValueError(
        f"`{name}` must be {expected}. Received: {name}={value!r} (of type "
        f"{type(value).__name__}). Pass other arguments by name."
    )


def one_of(name: str, value: str, choices: Sequence[str]) -> str:
    """The argument `name`.

    Raises:
        ValueError: If it is none of `choices`.
    """
    if value in choices:
        return value
    raise ValueError(f"`{name}` must be one of {choices}. Received: {name}={value!r}.")
