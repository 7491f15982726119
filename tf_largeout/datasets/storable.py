"""`Storable`: the base class of what a cache stores."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from tf_largeout.datasets.ragged import Ragged
from tf_largeout.datasets.text_table import TextTable

_Self = TypeVar("_Self", bound="Storable")


@dataclasses.dataclass(frozen=True)
class Storable:
    """A dataclass of rows, texts, arrays and integers that is converted to arrays and back.

    The fields are of the types `Ragged`, `TextTable`, `np.ndarray` and int. An array whose
    default is None may be None.
    """

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Returns a dict from names to arrays. `from_arrays` is the inverse."""
        arrays: dict[str, np.ndarray] = {}
        sizes = []
        for field in dataclasses.fields(self):
            name, value = field.name, getattr(self, field.name)
            if field.type is int:
                sizes.append(value)
            elif field.type in (Ragged, TextTable):
                rows = value.utf8 if field.type is TextTable else value
                arrays |= {f"{name}.values": rows.values, f"{name}.offsets": rows.offsets}
            elif value is not None:
                arrays[name] = value
        return {**arrays, "sizes": np.array(sizes, np.int64)} if sizes else arrays

    @classmethod
    def from_arrays(cls: type[_Self], arrays: Mapping[str, np.ndarray]) -> _Self:
        """Creates an object from the result of `to_arrays`.

        Raises:
            KeyError: If an array is missing.
        """
        values: dict[str, Any] = {}
        integers = [one.name for one in dataclasses.fields(cls) if one.type is int]
        if integers:
            values |= zip(integers, arrays["sizes"].tolist(), strict=True)
        for field in dataclasses.fields(cls):
            name = field.name
            if field.type in (Ragged, TextTable):
                rows = Ragged(arrays[f"{name}.values"], arrays[f"{name}.offsets"])
                values[name] = TextTable(rows) if field.type is TextTable else rows
            elif field.type is not int:
                values[name] = arrays.get(name) if field.default is None else arrays[name]
        return cls(**values)
