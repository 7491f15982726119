"""The argument `counts` of metrics: one number per class."""

from collections.abc import Sequence

import numpy as np

from tf_largeout.tags.output_tag import OutputTag


def checked_counts(counts: np.ndarray | Sequence[int]) -> np.ndarray:
    """Returns the argument as int64 `[num_classes]`.

    Raises:
        ValueError: If it is not a vector of whole numbers of at least 0.
    """
    counts = np.asarray(counts)
    if counts.ndim != 1 or counts.size == 0 or counts.dtype.kind not in "iuf":
        raise ValueError(
            "`counts` must be a list of numbers, one per class. Received an array of shape "
            f"{counts.shape} and dtype {counts.dtype}."
        )
    if not np.all(np.isfinite(counts)) or counts.min() < 0:
        raise ValueError(
            f"`counts` must be finite and not negative. Received the minimum {counts.min()}."
        )
    broken = counts[counts != np.floor(counts)]
    if broken.size:
        raise ValueError(
            "`counts` must be whole numbers: how many training examples a class has. Received "
            f"{broken[0]}."
        )
    return counts.astype("<i8")


def require_counts_of(counts: np.ndarray, tag: OutputTag) -> None:
    """Raises a ValueError unless a layer has as many classes as there are counts."""
    if tag.num_classes != len(counts):
        raise ValueError(
            f"`counts` must have one number for each of the {tag.num_classes} classes of "
            f"layer '{tag.layer.name}'. Received: {len(counts)} counts."
        )
