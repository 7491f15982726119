"""Layers of bags of ids: `EmbeddingBag`, the sums of their embeddings, and `HashedBigrams`."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import keras
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.arguments import is_whole, one_of, whole_number
from tf_largeout.keras_internals import NO_TRACE, running_step
from tf_largeout.ops import bag_ops, devices
from tf_largeout.types import Config, InitializerLike, Shape
from tf_largeout.variables.class_rows import mark_sparse
from tf_largeout.variables.replicas import local_variable
from tf_largeout.wrong_arguments import OF_ID_LAYERS, refuse_wrong_arguments

_COMBINERS = ("sum", "mean", "sqrtn")
_MULTIPLIER = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: Fibonacci hashing

_Rows: TypeAlias = tf.Tensor | tf.RaggedTensor
_Ids: TypeAlias = _Rows | dict[str, _Rows]


class _FlatBags(NamedTuple):
    """All bags as one list of `n` ids, without padding."""

    ids: tf.Tensor
    bag: tf.Tensor  # int64 [n], ascending: the number of the bag of each id
    weights: tf.Tensor | None
    shape: tf.Tensor  # of the input without its last dimension


class IdLayer(keras.layers.Layer):
    """Base of the layers that take ids `0 ... input_dim - 1`, and a padding id or None."""

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
        """Raises a ValueError if `ids`, or the weights of ids, are a sparse tensor."""
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
        """Returns an op that fails if one of `ids`, int64 without padding, is out of range."""
        low, high = tf.reduce_min(ids), tf.reduce_max(ids)
        padding = "" if self.padding_id is None else f" or {self.padding_id} for padding"
        message = (
            f"`ids` of layer '{self.name}' must be at least 0 and below "
            f"input_dim={self.input_dim}{padding}. If another id marks padding, such as -1, "
            "pass it as `padding_id`. Received ids from, to:"
        )
        return checks.require((low >= 0) & (high < self.input_dim), [message, low, high])


@keras.saving.register_keras_serializable(package="tf_largeout")
class EmbeddingBag(IdLayer):
    """Sums the embeddings of the ids in each bag: an encoder for sparse features.

    A bag may hold words, n-grams, or the items of a history. With weights `w_i` of the ids `i`
    in bag `b` (1 by default), it returns

        sum:    sum_i w_i e_i
        mean:   sum_i w_i e_i / sum_i w_i
        sqrtn:  sum_i w_i e_i / sqrt(sum_i w_i^2)

    as `tf.nn.embedding_lookup_sparse` does. Here `e_i` is the embedding of id i. Padding is
    ignored. If a bag has no ids, or the divisor is 0, the result is 0. The layer does not
    create a `[batch, max_ids, output_dim]` tensor. The gradient of the table is a
    `tf.IndexedSlices` of the ids in the batch, so that an optimizer of `tf_largeout.optimizers`
    updates only the rows of these ids.

    ```python
    bags = np.array([[3, 1, 3, 0], [2, 0, 0, 0]])  # padded with 0
    model = keras.Sequential(
        [tflo.layers.EmbeddingBag(50_000, 128), tflo.layers.LargeOutput(200_000, "uniform")]
    )
    ```

    In a functional model, with weights:

    ```python
    ids = keras.Input([None], dtype="int64", name="ids")
    weights = keras.Input([None], name="weights")
    features = tflo.layers.EmbeddingBag(50_000, 128)(ids, weights)
    ```

    Args:
        input_dim: Number of rows of the table; ids are `0 ... input_dim - 1`.
        output_dim: Width of an embedding.
        combiner: `"sum"`, `"mean"` or `"sqrtn"`. With `"sqrtn"`, the default, large and small
            bags give vectors of about the same length.
        padding_id: The id of padding, which is ignored and may be negative; None if there is no
            padding. With the default, 0, row 0 of the table is not used.
        embeddings_initializer: Initializer of the table. By default normal with standard
            deviation 0.05.
        **kwargs: Arguments of `keras.layers.Layer`.

    Call arguments:
        ids: Integers `[batch, ..., max_ids]`, or a `tf.RaggedTensor` `[batch, (ids)]`. Or a
            dict of `"ids"` and `"weights"`.
        weights: Optional floats of the shape of `ids`.

    Output shape:
        `[batch, ..., output_dim]`, of the compute dtype of the layer's dtype policy.

    Attributes:
        embeddings: Keras variable `[input_dim, output_dim]`.
        compute_dtype: `"int64"`, so that Keras does not cast ids to floats.

    Raises:
        ValueError: If an argument is not valid, `ids` are sparse, not integers or have fewer
            than two dimensions, or `weights` do not have the shape of `ids`.
        tf.errors.InvalidArgumentError: If an id is neither the padding nor in range, or `ids`
            are a multi-hot matrix: `input_dim` columns of 0 and 1.
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        combiner: str = "sqrtn",
        padding_id: int | None = 0,
        embeddings_initializer: InitializerLike | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(whole_number("input_dim", input_dim), padding_id, **kwargs)
        self.output_dim = whole_number("output_dim", output_dim)
        self.combiner = one_of("combiner", combiner, _COMBINERS)
        if embeddings_initializer is None:
            embeddings_initializer = keras.initializers.RandomNormal(stddev=0.05)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.embeddings: keras.Variable = None

    def build(self, input_shape: Shape | dict[str, Shape] | None = None) -> None:
        with devices.supported_device_scope():
            self.embeddings = self.add_weight(
                name="embeddings",
                shape=(self.input_dim, self.output_dim),
                initializer=self.embeddings_initializer,
                dtype=self.dtype_policy.variable_dtype,
                autocast=False,
            )
        mark_sparse(self.embeddings)
        self.built = True

    def call(
        self, ids: _Ids, weights: _Rows | None = None, training: bool | None = None
    ) -> tf.Tensor:
        ids, weights = self._checked(ids, weights)
        with devices.host_ids_scope():
            id_checks = [] if _is_ragged(ids) else self._check_not_values(ids)
            if weights is not None:
                shapes = [
                    x.row_splits if _is_ragged(x) else tf.shape(x) for x in (ids, weights)
                ]
                message = (
                    f"`weights` of layer '{self.name}' must have the shape of `ids` {NO_TRACE}"
                )
                id_checks.append(tf.debugging.assert_equal(*shapes, message=message))
            ids = tf.ragged.map_flat_values(functools.partial(checks.passed, id_checks), ids)
        table = local_variable(self.embeddings)
        is_compiled = running_step().is_compiled
        if is_compiled and _is_ragged(ids):
            raise ValueError(
                f"XLA must know the number of ids of layer '{self.name}' when it compiles. "
                "Received: ragged ids, and jit_compile=True. Pass padded ids, `ids.to_tensor("
                f"{self.padding_id or 0})`, or leave jit_compile=True out."
            )
        has_op = table.dtype == tf.float32 and devices.has_kernels_for(table)
        if (training or is_compiled) and has_op and not _is_ragged(ids):
            shape, combined = self._combined_by_one_op(table, ids, weights)
        else:
            shape, combined = self._combined_by_core_ops(table, ids, weights)
        with devices.host_ids_scope():
            shape = tf.concat([shape, [self.output_dim]], axis=0)
        combined = tf.ensure_shape(
            tf.reshape(combined, shape), (*ids.shape[:-1], self.output_dim)
        )
        return tf.cast(combined, self.dtype_policy.compute_dtype)

    @property
    def supports_jit(self) -> bool:
        """Whether XLA can compile the layer, see `ClassOutput.supports_jit`."""
        return self._supports_jit and devices.why_not_compiled() is None

    @supports_jit.setter
    def supports_jit(self, value: bool) -> None:
        self._supports_jit = value

    def compute_output_shape(self, input_shape: Shape | dict[str, Shape]) -> Shape:
        shape = input_shape["ids"] if isinstance(input_shape, dict) else input_shape
        return (*shape[:-1], self.output_dim)

    def compute_output_spec(
        self, ids: _Ids, weights: _Rows | None = None, training: bool | None = None
    ) -> keras.KerasTensor:
        ids, _ = self._checked(ids, weights)
        shape = self.compute_output_shape(tuple(ids.shape))
        return keras.KerasTensor(shape, self.dtype_policy.compute_dtype)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "combiner": self.combiner,
            "padding_id": self.padding_id,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }

    def _checked(self, ids: _Ids, weights: _Rows | None) -> tuple[_Rows, _Rows | None]:
        """Unpacks a dict of inputs, and checks what is known about their types and shapes."""
        if isinstance(ids, dict):
            if set(ids) != {"ids", "weights"}:
                raise ValueError(
                    f"A dict of inputs of layer '{self.name}' must have the keys 'ids' and "
                    f"'weights'. Received: {sorted(ids)}."
                )
            ids, weights = ids["ids"], ids["weights"]
        self.require_dense_or_ragged(ids)
        self.require_dense_or_ragged(weights)
        dtype = keras.backend.standardize_dtype(ids.dtype)
        if "int" not in dtype:
            raise ValueError(
                f"`ids` of layer '{self.name}' must be integers. Received: dtype {dtype}. "
                f"{self.way_to_ids(dtype)}"
            )
        if len(ids.shape) < 2 or (_is_ragged(ids) and len(ids.shape) > 2):
            raise ValueError(
                f"`ids` of layer '{self.name}' must be [batch, ..., max_ids], or ragged and "
                f"[batch, (ids)]. Received: shape {tuple(ids.shape)}."
            )
        known = tf.TensorShape(tuple(ids.shape))
        if weights is not None and not (
            known.is_compatible_with(tuple(weights.shape))
            and _is_ragged(ids) == _is_ragged(weights)
        ):
            raise ValueError(
                f"`weights` of layer '{self.name}' must have the shape of `ids`, "
                f"{tuple(ids.shape)}, and be ragged where those are. Received: shape "
                f"{tuple(weights.shape)}."
            )
        return ids, weights

    def _flat(self, ids: _Rows, weights: _Rows | None) -> _FlatBags:
        if isinstance(ids, tf.RaggedTensor):
            shape, bag = ids.nrows()[None], ids.value_rowids()
            ids, weights = ids.values, None if weights is None else weights.values
        else:
            shape = tf.shape(ids, tf.int64)[:-1]
            bag = tf.repeat(tf.range(tf.reduce_prod(shape)), tf.shape(ids)[-1])
            ids = tf.reshape(ids, [-1])
            weights = None if weights is None else tf.reshape(weights, [-1])
        ids = tf.cast(ids, tf.int64)
        if self.padding_id is not None:
            present = ids != self.padding_id
            ids, bag = tf.boolean_mask(ids, present), tf.boolean_mask(bag, present)
            weights = None if weights is None else tf.boolean_mask(weights, present)
        return _FlatBags(ids, bag, weights, shape)

    def _check_not_values(self, ids: tf.Tensor) -> list[tf.Operation | None]:
        """Ops that fail if `ids` have one value per id, as multi-hot or TF-IDF vectors do.

        A `Sequential` without `keras.Input` would round such floats down to 0, the padding.
        """
        if self.input_dim <= 2 or ids.shape[-1] != self.input_dim:
            return []
        low, high = tf.reduce_min(ids), tf.reduce_max(ids)
        message = (
            f"Layer '{self.name}' takes ids. Received a matrix of input_dim={self.input_dim} "
            "columns that holds only 0 and 1 after rounding down: one value for each id. Pass "
            "the ids of the columns that are not 0, and the values as `weights`, both padded. "
            "Received ids of shape"
        )
        is_values = (low >= 0) & (low <= high) & (high <= 1)
        return [checks.require(~is_values, [message, tf.shape(ids)])]

    def _combined_by_one_op(
        self, table: tf.Variable, ids: tf.Tensor, weights: tf.Tensor | None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Like `_combined_by_core_ops`, but much faster. Exports cannot use this op."""
        sum_of_bags = functools.partial(tf.reduce_sum, axis=1, keepdims=True)
        with devices.host_ids_scope():
            shape = tf.shape(ids, tf.int64)[:-1]
            flat = [tf.reduce_prod(shape), tf.shape(ids, tf.int64)[-1]]
            ids = tf.reshape(tf.cast(ids, tf.int64), flat)
            padding_id = self.padding_id or 0
            is_padding = tf.zeros_like(ids)
            if self.padding_id is not None:
                is_padding = tf.cast(ids == padding_id, tf.int64)
            # Padding becomes 0, then -1. Arithmetic is several times as fast as tf.where.
            used = ids - is_padding * padding_id if padding_id else ids
            ids = checks.passed([self.check_range(used)], used) - is_padding
            if weights is None and self.combiner == "sum":
                factors = tf.ones(flat)
            elif weights is None:
                # One factor per bag, also for its padding, whose weights the op ignores.
                count = tf.cast(flat[1] - sum_of_bags(is_padding), tf.float32)
                divisor = count if self.combiner == "mean" else tf.sqrt(count)
                factors = tf.broadcast_to(tf.math.reciprocal_no_nan(divisor), flat)
        if weights is not None:
            weights = tf.cast(tf.reshape(weights, tf.shape(ids)), tf.float32)
            factors = tf.where(is_padding > 0, tf.zeros_like(weights), weights)
            if self.combiner != "sum":
                factors = tf.math.divide_no_nan(factors, self._divisor(factors, sum_of_bags))
        return shape, bag_ops.bag_sums(table, ids, factors, weights is not None)

    def _combined_by_core_ops(
        self, table: tf.Variable, ids: _Rows, weights: _Rows | None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the shape of the bags, and their embeddings `[num_bags, output_dim]`."""
        with devices.host_ids_scope():
            bags = self._flat(ids, weights)
            ids = checks.passed([self.check_range(bags.ids)], bags.ids)
        embeddings = tf.gather(table, ids)
        weights = tf.ones_like(bags.ids, embeddings.dtype)
        if bags.weights is not None:
            weights = tf.cast(bags.weights, embeddings.dtype)
            embeddings *= weights[:, None]
        sums = _segment_sum(embeddings, bags)
        if self.combiner == "sum":
            return bags.shape, sums
        divisor = self._divisor(weights, lambda values: _segment_sum(values, bags))
        return bags.shape, tf.math.divide_no_nan(sums, divisor[:, None])

    def _divisor(
        self, weights: tf.Tensor, sum_of_bags: Callable[[tf.Tensor], tf.Tensor]
    ) -> tf.Tensor:
        """Returns the divisors of the bags for "mean" and "sqrtn", from the weights of ids."""
        if self.combiner == "mean":
            return sum_of_bags(weights)
        return tf.sqrt(sum_of_bags(weights * weights))


@keras.saving.register_keras_serializable(package="tf_largeout")
class HashedBigrams(IdLayer):
    """Appends the pairs of adjacent ids to each bag, hashed to new ids.

    The sum of embeddings that `EmbeddingBag` computes does not depend on the order of the ids,
    so it cannot represent a pair of adjacent ids. With this layer a pair `(a, b)` gets the id
    `input_dim + hash(a, b) % num_buckets`. So one table of `input_dim + num_buckets` rows has a
    row for each id and for each hashed pair, and no list of pairs is needed:

    ```python
    ids = keras.Input([40], dtype="int32")  # below 50_000, padded with 0
    pairs = tflo.layers.HashedBigrams(50_000, 2**20)(ids)
    features = tflo.layers.EmbeddingBag(50_000 + 2**20, 128)(pairs)
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
        self, input_dim: int, num_buckets: int, padding_id: int | None = 0, **kwargs: Any
    ) -> None:
        super().__init__(whole_number("input_dim", input_dim, most=2**31), padding_id, **kwargs)
        self.num_buckets = whole_number("num_buckets", num_buckets, most=2**31)

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        self._check(ids)
        with devices.host_ids_scope():
            return self._with_pairs(tf.cast(ids, tf.int64))

    def _with_pairs(self, ids: tf.Tensor) -> tf.Tensor:
        # An id that is too large would become the id of a pair.
        known = ids if self.padding_id is None else tf.where(ids != self.padding_id, ids, 0)
        ids = checks.passed([self.check_range(known)], ids)
        first, second = ids[..., :-1], ids[..., 1:]
        key = tf.cast(first * self.input_dim + second, tf.uint64)
        shift = tf.constant(33, tf.uint64)
        mixed = tf.bitwise.right_shift(key * tf.constant(_MULTIPLIER, tf.uint64), shift)
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

    def _check(self, ids: tf.Tensor | keras.KerasTensor) -> None:
        self.require_dense_or_ragged(ids)
        dtype = keras.backend.standardize_dtype(ids.dtype)
        ragged = _is_ragged(ids)
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


def _segment_sum(values: tf.Tensor, bags: _FlatBags) -> tf.Tensor:
    """Returns the sum of each bag; zeros for bags without ids."""
    sums = tf.math.segment_sum(values, bags.bag)  # up to the last bag with an id
    with devices.host_ids_scope():
        num_bags = tf.cast(tf.reduce_prod(bags.shape), tf.int32)
    missing = num_bags - tf.shape(sums)[0]
    return tf.pad(sums, [[0, missing]] + [[0, 0]] * (values.shape.rank - 1))


def _is_ragged(tensor: _Rows) -> bool:
    return isinstance(tensor, tf.RaggedTensor) or getattr(tensor, "ragged", False)
