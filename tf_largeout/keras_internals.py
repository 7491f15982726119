"""From which method of Keras this code is being called."""

import inspect
import types
from collections.abc import Iterator
from typing import Any


def caller(method: Any) -> Any:
    """The object whose `method` is on the call stack, or None.

    Args:
        method: One that Keras defines, such as `keras.Model.export`: of another one that has
            its name nothing is known.
    """
    code = inspect.unwrap(method).__code__
    return next((one.f_locals["self"] for one in frames() if one.f_code is code), None)


def frames() -> Iterator[types.FrameType]:
    """The frames that this is called from, inner ones first."""
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back
