"""Tables of counts from which a sampler draws, as weights of its layer."""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.types import Initializer, TensorLike
from tf_largeout.variables.initializers import constant_initializer, zeros_initializer
from tf_largeout.variables.replicas import local_variable

Spec = tuple[str, tuple[int, ...], str]  # name, shape and dtype


class CountTables:
    """The weights of a sampler that hold counts of classes, in a form for fast draws.

    They hold zeros until they are filled with counts or loaded from a file.
    """

    def __init__(self) -> None:
        self._tables: list[keras.Variable] = []
        self._are_filled = False

    @property
    def are_built(self) -> bool:
        """Whether the weights exist."""
        return bool(self._tables)

    def build(
        self,
        sampler: Sampler,
        layer: ClassLayer,
        specs: Sequence[Spec],
        values: Sequence[np.ndarray] | None,
    ) -> None:
        """Creates the weights.

        Args:
            sampler: The sampler that uses them.
            layer: The layer that builds it.
            specs: Name, shape and dtype of each weight.
            values: Their values, or None for zeros.
        """
        initializers: list[Initializer] = [zeros_initializer] * len(specs)
        if values is not None:
            initializers = [constant_initializer(value) for value in values]
        self._tables = [
            sampler.add_weight(layer, name, shape, dtype, initializer)
            for (name, shape, dtype), initializer in zip(specs, initializers, strict=True)
        ]
        self._are_filled = values is not None

    def assign(self, values: Sequence[TensorLike]) -> None:
        """Sets the weights."""
        for table, value in zip(self._tables, values, strict=True):
            table.assign(value)
        self._are_filled = True

    def values(self) -> list[np.ndarray]:
        """Returns the weights, zeros if nothing was counted. Call it only outside a step."""
        return [local_variable(table).numpy() for table in self._tables]

    def read(self, asked_by: str) -> list[tf.Tensor]:
        """Returns the values of the weights.

        Args:
            asked_by: Name of the sampler, for the message.

        Raises:
            ValueError: If the weights were never filled.
        """
        self._are_filled = self._are_filled or self._hold_something()
        if not self._are_filled:
            raise ValueError(
                f"This {asked_by} has no class counts. Pass `counts` if it has this "
                "argument, call `adapt` on the training labels, or load saved weights. Counts "
                "are saved with the weights, not in the config. So a copy of a model by "
                "`keras.models.clone_model` has no class counts until `clone.set_weights(...)`."
            )
        return [tf.convert_to_tensor(table) for table in self._tables]

    def _hold_something(self) -> bool:
        """Returns whether the weights were loaded. True while variables do not exist yet."""
        strategy = tf.distribute.get_strategy()
        with tf.init_scope():
            try:
                last = [
                    strategy.experimental_local_results(table.value)[0][-1]
                    for table in self._tables
                ]
            except tf.errors.FailedPreconditionError:
                return True  # the draw checks this
            return any(bool(tf.reduce_any(numbers > 0)) for numbers in last)
