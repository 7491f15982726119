"""The base class of layers whose inputs are bags of ids."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.arguments import is_whole
from tf_largeout.wrong_arguments import OF_ID_LAYERS, refuse_wrong_arguments


class IdLayer(keras.layers.Layer):
    """Base of the layers that take ids below `input_dim`, and a padding id.

    Args:
        input_dim: Ids are `0 ... input_dim - 1`.
        padding_id: The id of padding, which is ignored and may be negative; None if there is no
            padding.
        **kwargs: Arguments of `keras.layers.Layer`.

    Raises:
        ValueError: If `padding_id` is not an integer or None.
    """

    def __init__(self, input_dim: int, padding_id: int | None, **kwargs: Any) -> None:
        refuse_wrong_arguments(type(self).__name__, kwargs, OF_ID_LAYERS)
        super().__init__(autocast=False, **kwargs)  # ids and their weights keep their types
        if padding_id is not None and not is_whole(padding_id):
            raise ValueError(
                f"`padding_id` must be an integer or None. Received: padding_id={padding_id!r}."
            )
        self.input_dim = input_dim
        self.padding_id = None if padding_id is None else int(padding_id)

    # The input of a `Sequential` has the `compute_dtype` of the first layer. As floats, ids
    # above 2^24 (in bfloat16 above 2^8) would become other ids. Both properties are overridden,
    # as in `keras.layers.StringLookup`; otherwise Keras would autocast.
    @property
    def compute_dtype(self) -> str:
        return "int64"

    @property
    def variable_dtype(self) -> str:
        return "int64"

    def require_dense_or_ragged(self, ids: Any) -> None:
        """Raises a ValueError if `ids`, or the weights of ids, are a sparse tensor.

        The values of such a tensor may be ids, or counts of the ids to which its columns
        belong.
        """
        if isinstance(ids, tf.SparseTensor) or getattr(ids, "sparse", False):
            raise ValueError(
                f"Layer '{self.name}' takes padded or ragged ids, not sparse tensors. "
                f"Received: a sparse tensor of shape {tuple(ids.shape)}. If its values are "
                "ids, pass `tf.sparse.to_dense(ids, padding_id)`. If it has a column for each "
                "id, pass to an `EmbeddingBag` the ids of the columns that are not 0, and the "
                "values as `weights`, both padded."
            )

    def way_to_ids(self, dtype: str) -> str:
        """Returns a hint how to pass integers instead of inputs of type `dtype`."""
        if dtype == "string":
            return (
                "Convert strings to ids before the layer: "
                "`keras.layers.StringLookup(vocabulary=words, mask_token='')` pads with id 0."
            )
        return "Give the model's input an integer dtype: `keras.Input([n], dtype='int64')`."

    def check_range(self, ids: tf.Tensor) -> tf.Operation | None:
        """Returns an op that fails if an id is out of range.

        Args:
            ids: int64, any shape, without padding.
        """
        low, high = tf.reduce_min(ids), tf.reduce_max(ids)
        padding = "" if self.padding_id is None else f" or {self.padding_id} for padding"
        message = (
            f"`ids` of layer '{self.name}' must be at least 0 and below "
            f"input_dim={self.input_dim}{padding}. If another id marks padding, such as -1, "
            "pass it as `padding_id`. Received ids from, to:"
        )
        return checks.require((low >= 0) & (high < self.input_dim), [message, low, high])
