"""Users' histories and their split, one interaction at a time."""

import collections


def histories(rows, k_core=1):
    """Returns `{user: [item, ...]}` of the k-core, sorted by time.

    Args:
        rows: `(user, item, time)` tuples in the order of the file.
    """
    rows = list(rows)
    while True:
        users = collections.Counter(user for user, _, _ in rows)
        items = collections.Counter(item for _, item, _ in rows)
        kept = [row for row in rows if users[row[0]] >= k_core and items[row[1]] >= k_core]
        if len(kept) == len(rows):
            break
        rows = kept
    result = {}
    for user, item, _ in sorted(rows, key=lambda row: row[2]):  # stable
        result.setdefault(user, []).append(item)
    return result


def split(history):
    """Returns `(training items, validation item, test item)`; None for short histories."""
    if len(history) < 3:
        return history, None, None
    return history[:-2], history[-2], history[-1]


def windows(items, length):
    """Returns the inputs and the labels of a training history, the oldest window first."""
    pairs = list(zip(items[:-1], items[1:], strict=True))
    result = []
    while pairs:
        last, pairs = pairs[-length:], pairs[:-length]
        missing = length - len(last)
        result.insert(
            0, ([0] * missing + [a for a, _ in last], [-1] * missing + [b for _, b in last])
        )
    return result
