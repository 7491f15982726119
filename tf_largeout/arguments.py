"""Checks of arguments that many classes take."""

import numbers


def is_whole(value) -> bool:
    """Whether `value` is an integer of Python's or numpy's; a bool is none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def whole_number(name, value, least=1, or_none=False):
    """The argument `name` as an int.

    Args:
        name: Name of the argument, for the message.
        value: What was passed.
        least: The smallest number that is accepted.
        or_none: Whether None is accepted too, and returned.

    Raises:
        ValueError: If `value` is something else, or too small.
    """
    if or_none and value is None:
        return None
    if is_whole(value) and value >= least:
        return int(value)
    expected = "a positive integer" if least == 1 else f"an integer of at least {least}"
    raise ValueError(
        f"`{name}` must be {expected}{' or None' if or_none else ''}. "
        f"Received: {name}={value!r} (of type {type(value).__name__})."
    )
