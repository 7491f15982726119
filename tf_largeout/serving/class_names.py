"""The names of the classes, as a text file of an export."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

FILE = "class_names.txt"

ClassNames = Sequence[str] | str | os.PathLike[str]


def write(class_names: ClassNames, num_classes: int, folder: str) -> tf.saved_model.Asset:
    """Writes `FILE`, a line per class, and returns it as an asset. See `export` for errors."""
    path, count = os.path.join(folder, FILE), 0
    try:
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            for name in _lines(class_names):
                file.write(f"{name}\n")
                count += 1
    except UnicodeError as error:
        raise ValueError(
            f"`class_names` must be text that UTF-8 can encode. Received: {error}, after "
            f"{count} names."
        ) from error
    if count != num_classes:
        raise ValueError(
            f"`class_names` must have a name for each of the {num_classes} classes, in the "
            f"order of their ids. Received: {count} names. Use '' for classes without a name."
        )
    return tf.saved_model.Asset(path)


def _lines(class_names: Any) -> Iterator[str]:
    if isinstance(class_names, str | os.PathLike):
        with open(class_names, encoding="utf-8") as file:
            yield from (line.removesuffix("\n") for line in file)
        return
    if not isinstance(class_names, list | tuple | np.ndarray):
        raise ValueError(
            "`class_names` must be a list of strings, or the path of a text file with one name "
            f"per line. Received: an object of type {type(class_names).__name__}."
        )
    for place, name in enumerate(class_names):
        if not isinstance(name, str) or "\n" in name or "\r" in name:
            raise ValueError(
                "`class_names` must be strings without line breaks. Received: "
                f"class_names[{place}]={name!r}."
            )
        yield name
