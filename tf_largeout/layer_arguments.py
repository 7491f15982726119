"""Checks of the arguments of output layers, for all backends."""

from typing import Any

import keras

from tf_largeout.arguments import is_whole, real_number

LEARNED = "learned"  # the value of `scale` for a trained one


def checked_scale(scale: float | str | None) -> float | str | None:
    """Returns the argument `scale`, or raises a ValueError."""
    if scale is None or (isinstance(scale, str) and scale == LEARNED):
        return scale
    if isinstance(scale, str):
        raise ValueError(
            f"`scale` must be a number above 0, 'learned' or None. Received: scale={scale!r}."
        )
    return real_number("scale", scale, least=0, allow_least=False)


def checked_cap(logit_soft_cap: float | None) -> float | None:
    """Returns the argument `logit_soft_cap`, or raises a ValueError."""
    if logit_soft_cap is None:
        return None
    return real_number("logit_soft_cap", logit_soft_cap, least=0, allow_least=False)


def checked_dtype(embeddings_dtype: Any, variable_dtype: str) -> str | None:
    """Returns the argument `embeddings_dtype` as a name, or raises a ValueError."""
    if embeddings_dtype is None:
        return None
    try:
        dtype = keras.backend.standardize_dtype(embeddings_dtype)
    except (ValueError, TypeError):
        dtype = None
    if dtype not in ("bfloat16", variable_dtype):
        raise ValueError(
            f"`embeddings_dtype` must be 'bfloat16', or '{variable_dtype}' or None for the "
            "variable dtype of the layer's dtype policy. Received: embeddings_dtype="
            f"{embeddings_dtype!r}. (float16 overflows above 65,504, bfloat16 never does.)"
        )
    return dtype


def refuse_initializer(initializer: Any) -> None:
    """Raises a ValueError if `embeddings_initializer` is given with a shared table."""
    if initializer is not None:
        raise ValueError(
            "The layer that `embeddings` comes from initializes the shared table. Received: "
            f"both `embeddings` and embeddings_initializer={initializer!r}. "
            "Leave one of them out."
        )


def require_row_per_class(num_rows: int, num_classes: int) -> None:
    """Raises a ValueError if a shared table has another number of rows than classes."""
    if num_rows != num_classes:
        raise ValueError(
            f"A shared table must have one row per class. Received: a table of {num_rows} "
            f"rows and num_classes={num_classes}. Use num_classes={num_rows}. If "
            "some rows are only padding, leave them out of the results with `exclude` or "
            "`allowed`, for example in `predict_top_k`."
        )


def known_width(layer: str, input_shape: tuple[int | None, ...]) -> int:
    """Returns the last dimension of the input. Raises a ValueError if it is not known."""
    dim = input_shape[-1]
    if dim is None:
        raise ValueError(
            f"The last dimension of the input of layer '{layer}' must be known. "
            f"Received: input_shape={tuple(input_shape)}. Give the layer before it a fixed "
            "number of units."
        )
    return dim


def wrong_features(layer: str, dim: int, shape: Any) -> ValueError:
    """Returns the error of `top_k` for features of another width than `dim`."""
    return ValueError(
        f"`features` must be inputs of layer '{layer}', [..., {dim}]. Received: features of "
        f"shape {shape}. Pass the output of the layer before it, not logits."
    )


def checked_k(k: Any, num_classes: int) -> int:
    """Returns the argument `k` of `top_k`, or raises a ValueError."""
    if not (is_whole(k) and k >= 1):
        raise ValueError(
            "`k` must be an integer of at least 1, usually between 1 and "
            f"num_classes={num_classes}. Received: k={k!r}."
        )
    return int(k)
