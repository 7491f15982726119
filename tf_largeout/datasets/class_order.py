"""Class ids in the order that samplers expect."""

import numpy as np


def frequency_order(train_counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranks classes by falling training count; equal counts keep their order.

    Args:
        train_counts: integers `[num_classes]`.

    Returns:
        `(order, rank)`: `order[new_id]` is the old id and `rank[old_id]` the new one.
    """
    order = np.argsort(-np.asarray(train_counts), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return order, rank
