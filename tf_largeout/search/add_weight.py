"""What a search structure asks of its owner."""

from typing import Protocol

import keras

from tf_largeout.types import InitializerLike


class AddWeight(Protocol):
    """A function that makes a weight of the owner, which is not trained."""

    def __call__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        initializer: InitializerLike,
        on_host: bool = False,
    ) -> keras.Variable:
        """Makes a weight.

        Args:
            name: Its name, no other's of the structure.
            shape: Its shape.
            dtype: Its type, such as "uint32".
            initializer: What gives it its first values.
            on_host: Whether it is on the CPU; else it is on the device of the rows.
        """
