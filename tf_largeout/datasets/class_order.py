"""Order of class ids by frequency, as samplers expect it."""

import numpy as np


def frequency_order(train_counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranks classes by descending training count. Equal counts keep their order.

    Args:
        train_counts: integers `[num_classes]`.

    Returns:
        `(order, rank)`: `order[new_id]` is the old id, and `rank[old_id]` is the new id.
    """
    order = np.argsort(-np.asarray(train_counts), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return order, rank
