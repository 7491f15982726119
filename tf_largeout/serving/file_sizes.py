"""The sizes of the parts of a SavedModel."""

import os

import tensorflow as tf


def of_saved_model(path: str) -> dict[str, int]:
    """Returns bytes of "weights", "graph" and "assets" of a SavedModel, and their "total"."""
    sizes = {"weights": 0, "graph": 0, "assets": 0}
    for folder, _, files in tf.io.gfile.walk(path):
        kinds = {"variables": "weights", "assets": "assets", "assets.extra": "assets"}
        kind = kinds.get(os.path.basename(folder.rstrip("/")), "graph")
        for name in files:
            sizes[kind] += tf.io.gfile.stat(os.path.join(folder, name)).length
    return {**sizes, "total": sum(sizes.values())}


def as_text(sizes: dict[str, int]) -> str:
    """Formats sizes: "217.4 MiB (weights 217.3 MiB, graph 64.0 KiB)"."""
    parts = [
        f"{name} {_text(size)}" for name, size in sizes.items() if size and name != "total"
    ]
    return f"{_text(sizes['total'])} ({', '.join(parts)})"


def _text(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB" if size >= 2**20 else f"{size / 2**10:,.1f} KiB"
