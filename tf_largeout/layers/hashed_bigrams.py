"""`HashedBigrams`: adds pairs of adjacent ids to bags of ids."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.arguments import whole_number
from tf_largeout.layers.id_layer import IdLayer
from tf_largeout.types import Config, Shape

_MULTIPLIER = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: Fibonacci hashing


@keras.saving.register_keras_serializable(package="tf_largeout")
class HashedBigrams(IdLayer):
    """Appends the pairs of adjacent ids to each bag, hashed to new ids.

    The sum of embeddings that `EmbeddingBag` computes does not depend on the order of the ids,
    so it cannot represent a pair of adjacent ids. With this layer a pair `(a, b)` gets the id
    `input_dim + hash(a, b) % num_buckets`. So one table of `input_dim + num_buckets` rows has a
    row for each id and for each hashed pair, and no list of pairs is needed:

    ```python
    model = keras.Sequential(
        [
            keras.Input([40], dtype="int32"),  # ids below 50_000, padded with 0
            tflo.layers.HashedBigrams(50_000, 2**20),
            tflo.layers.EmbeddingBag(50_000 + 2**20, 128),
            tflo.layers.LargeOutput(200_000, "uniform"),
        ]
    )
    ```

    References:
        Joulin et al. 2017, "Bag of tricks for efficient text classification"
        (arXiv 1607.01759), section 2.1: n-grams by the hashing trick.

    Args:
        input_dim: Ids are `0 ... input_dim - 1`.
        num_buckets: Number of new ids. Pairs with the same hash share a row of the table. More
            buckets than distinct pairs in the training examples are not useful.
        padding_id: The id of padding; None if there is no padding. Pairs that contain it become
            `padding_id`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        ids: Integers `[batch, ..., n]`.

    Output shape:
        `[batch, ..., 2 n - 1]`, int64: the ids, then their pairs.

    Raises:
        ValueError: If an argument is not valid, or `ids` are sparse, ragged, not integers or
            have fewer than two dimensions.
        tf.errors.InvalidArgumentError: If an id is neither the padding nor below `input_dim`.
    """

    def __init__(
        self,
        input_dim: int,
        num_buckets: int,
        padding_id: int | None = 0,
        **kwargs: Any,
    ) -> None:
        super().__init__(whole_number("input_dim", input_dim, most=2**31), padding_id, **kwargs)
        self.num_buckets = whole_number("num_buckets", num_buckets, most=2**31)

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        self._check(ids)
        ids = self._in_range(tf.cast(ids, tf.int64))
        first, second = ids[..., :-1], ids[..., 1:]
        key = tf.cast(first * self.input_dim + second, tf.uint64)
        mixed = tf.bitwise.right_shift(
            key * tf.constant(_MULTIPLIER, tf.uint64), tf.constant(33, tf.uint64)
        )
        pairs = self.input_dim + tf.cast(mixed, tf.int64) % self.num_buckets
        if self.padding_id is not None:
            is_pair = (first != self.padding_id) & (second != self.padding_id)
            pairs = tf.where(is_pair, pairs, tf.constant(self.padding_id, tf.int64))
        return tf.concat([ids, pairs], axis=-1)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        width = input_shape[-1]
        return (*input_shape[:-1], None if width is None else 2 * width - 1)

    def compute_output_spec(self, ids: keras.KerasTensor) -> keras.KerasTensor:
        self._check(ids)
        return keras.KerasTensor(self.compute_output_shape(tuple(ids.shape)), "int64")

    def _in_range(self, ids: tf.Tensor) -> tf.Tensor:
        """Checks the ids: an id that is too large would become the id of a pair."""
        known = ids
        if self.padding_id is not None:
            known = tf.where(ids != self.padding_id, ids, 0)
        return checks.passed([self.check_range(known)], ids)

    def _check(self, ids: tf.Tensor | keras.KerasTensor) -> None:
        self.require_dense_or_ragged(ids)
        dtype = keras.backend.standardize_dtype(ids.dtype)
        ragged = isinstance(ids, tf.RaggedTensor) or getattr(ids, "ragged", False)
        if "int" not in dtype or len(ids.shape) < 2 or ragged:
            raise ValueError(
                f"`ids` of layer '{self.name}' must be integers [batch, ..., n], padded, not "
                f"ragged. Received: dtype {dtype}, shape {tuple(ids.shape)}"
                f"{', ragged' if ragged else ''}. {self.way_to_ids(dtype)} "
                "`to_tensor()` pads ragged ids."
            )

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "num_buckets": self.num_buckets,
            "padding_id": self.padding_id,
        }
