"""The function with which a search structure creates its weights."""

from typing import Protocol

import keras

from tf_largeout.types import InitializerLike


class AddWeight(Protocol):
    """A function that creates a weight of the owner, which is not trained."""

    def __call__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        initializer: InitializerLike,
        on_host: bool = False,
    ) -> keras.Variable:
        """Creates a weight.

        Args:
            name: Name of the weight, unique within the structure.
            shape: Shape of the weight.
            dtype: Type of the weight, such as "uint32".
            initializer: A Keras initializer or its name.
            on_host: Whether the weight is on the CPU. Otherwise it is on the device of the
                rows.
        """
