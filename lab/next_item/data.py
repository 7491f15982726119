"""The data of the comparison, as one `.npz` file for programs with and without TensorFlow."""

import numpy as np

import tf_largeout as tflo
from lab import corpora

DATASETS = ("ml_100k", "linux_tokens", "gcide")


def write(path, name, num_evaluated, num_pieces):
    """Writes the leave-one-out split of a data set.

    Args:
        path: File to write.
        name: One of `DATASETS`.
        num_evaluated: Maximum number of users to evaluate.
        num_pieces: Maximum number of pieces of a text. Each piece is a user.
    """
    if name == "ml_100k":
        data, length = tflo.datasets.ml_100k(k_core=5), 50
    else:
        data, length = text_pieces(name, num_pieces), 61
    split = data.leave_one_out(length, num_evaluated)
    histories = [data.history(user) for user in range(data.num_users)]
    training = [items[:-2] if len(items) > 2 else items for items in histories]
    arrays = {
        "x": split.x,
        "y": split.y.astype(np.int32),
        "counts": data.item_counts,
        "training": np.concatenate(training),
        "lengths": np.array([len(items) for items in training]),
    }
    for part in ("validation", "test"):
        held_out = getattr(split, part)
        arrays[f"{part}_history"] = held_out.history
        arrays[f"{part}_target"] = held_out.target
        if name == "ml_100k":  # In texts, items return.
            arrays[f"{part}_seen"] = held_out.seen
    np.savez(path, **arrays)
    return {"users": data.num_users, "items": data.num_items, "interactions": len(data)}


def text_pieces(name, num_pieces, length=64):
    """Returns pieces of a text as users: identifiers of C code, or words of a dictionary."""
    tokens = corpora.load(name)
    words = np.array([tokens.class_text(i) for i in range(tokens.num_classes)], object)
    is_item = np.array([len(word) > 2 and word.isidentifier() for word in words])
    is_item[tokens.unknown_id] = False
    items = tokens.train_tokens[is_item[tokens.train_tokens]]
    pieces = items[: len(items) // length * length].reshape(-1, length)
    if len(pieces) > num_pieces:
        pieces = np.random.default_rng(0).choice(pieces, num_pieces, replace=False)
    users = np.repeat(np.arange(len(pieces)), length)
    names = np.arange(len(pieces)).astype(str)
    return tflo.datasets.Interactions.from_numbers(users, pieces.ravel(), None, names, words)
