"""Checks of the arguments of `LargeOutput`."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout.arguments import memory_of_machine, real_number, require_memory, whole_number
from tf_largeout.layers.item_tower import ItemTower

LEARNED = "learned"


def checked_scale(scale: float | str | None) -> float | str | None:
    """Returns `scale`; a number as a float.

    Raises:
        ValueError: If it is neither a number above 0, nor "learned", nor None.
    """
    if scale is None or (isinstance(scale, str) and scale == LEARNED):
        return scale
    if isinstance(scale, str):
        raise ValueError(
            f"`scale` must be a number above 0, 'learned' or None. Received: scale={scale!r}."
        )
    return real_number("scale", scale, least=0, allow_least=False)


def checked_tower(
    tower: ItemTower, num_classes: int, embeddings_dtype: str | None
) -> ItemTower:
    """Returns `tower`, with one row per class.

    Raises:
        ValueError: If it has another number of classes, there are several replicas, or
            `embeddings_dtype` is not float32.
    """
    if embeddings_dtype not in (None, "float32"):
        raise ValueError(
            "An ItemTower computes the class rows in float32. Received: both an ItemTower and "
            f"embeddings_dtype='{embeddings_dtype}'. Leave one of them out."
        )
    if tower.num_classes != num_classes:
        raise ValueError(
            f"`embeddings` must have the features of all {num_classes} classes. Received: an "
            f"ItemTower of {tower.num_classes} classes."
        )
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
        raise ValueError(
            "An ItemTower does not support several replicas. Received: a strategy with "
            f"{tf.distribute.get_strategy().num_replicas_in_sync}. Train on one device."
        )
    return tower


def checked_num_shards(num_shards: int, num_classes: int, is_tied: bool) -> int:
    """Returns `num_shards` as an int.

    Raises:
        ValueError: If it is not an integer from 1 to `num_classes`, or above 1 for tied
            embeddings.
    """
    count = whole_number("num_shards", num_shards)
    if count > num_classes:
        raise ValueError(
            "`num_shards` must be at most the number of classes, so that each shard has one. "
            f"Received: num_shards={count}, num_classes={num_classes}."
        )
    if is_tied and count > 1:
        raise ValueError(
            "`num_shards` must be 1 if `embeddings` is given, because the rows of another "
            f"layer or of an ItemTower have no shards. Received: num_shards={count}. Leave "
            "`embeddings` out, or use num_shards=1."
        )
    return count


def checked_dtype(embeddings_dtype: Any, variable_dtype: str) -> str | None:
    """Returns `embeddings_dtype` as a string, or None.

    Raises:
        ValueError: If it is neither "bfloat16", nor the variable dtype of the layer's dtype
            policy, nor None.
    """
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


def require_memory_for(shape: tuple[int, int], dtype: str) -> None:
    """Raises an error for a matrix of class rows that does not fit into this machine.

    Rows that can be on a GPU or on another machine are not checked.
    """
    if tf.distribute.has_strategy() or tf.config.get_visible_devices("GPU"):
        return
    numbers = shape[0] * shape[1]
    advice = "Lower the width of the features, or use several machines (`num_shards`)."
    if dtype == "float32" and 2 * numbers < memory_of_machine():
        advice = f'`embeddings_dtype="bfloat16"` takes half of this. {advice}'
    require_memory(
        numbers * tf.as_dtype(dtype).size,
        f"The matrix of {shape[0]:,} class rows of width {shape[1]} in {dtype}, without the "
        "state of the optimizer, takes",
        advice,
    )
