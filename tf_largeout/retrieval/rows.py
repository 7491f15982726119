"""The class rows of an index: embeddings, biases, and which of them are removed."""

import copy
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import MOST_CLASSES
from tf_largeout.classes.best_scores import NOTHING, highest
from tf_largeout.classes.class_scorer import ClassMatrix, ClassScorer, RowScorer
from tf_largeout.classes.filtered_top_k import as_float32, exact_top_k
from tf_largeout.classes.quantized_rows import (
    CODE_OF_ZERO,
    CODES_TOGETHER,
    GROUP_ROWS,
    PackedTable,
    empty_aligned,
    pack_rows,
    padded_width,
)
from tf_largeout.classes.row_sources import RowSource
from tf_largeout.ops import class_scan_ops
from tf_largeout.ops.class_scan_ops import PackedClasses
from tf_largeout.types import AddWeight, TensorLike

_SAMPLED_CLASSES = 64
_LEAST_WIDTH = 32  # For narrower rows, 8-bit numbers hardly save time.
# Of a class that no search finds: codes; scale and bias; error, norm and highest bias.
_NO_CLASS: tuple[np.ndarray, ...] = (
    np.array([[CODE_OF_ZERO]], np.uint8),
    np.array([[0.0], [-np.inf]], np.float32),
    np.array([[0.0], [0.0], [-np.inf]], np.float32),
)


class Rows:
    """Immutable class rows: `added`, `updated` and `removed` return new ones.

    So searches need no lock. The rows of removed classes are NaN, so no search finds these
    classes.

    Attributes:
        matrix: Scores the classes, float32 `[num_classes, dim]`, with biases or without.
        alive: bool `[num_classes]`, false for removed classes.
    """

    def __init__(
        self, embeddings: tf.Tensor, bias: tf.Tensor | None, alive: np.ndarray
    ) -> None:
        # TensorFlow keeps 34 KB per variable name. Without `name`, Keras creates a new name.
        own = {"name": "rows", "trainable": False, "dtype": "float32", "autocast": False}
        variable = keras.Variable(embeddings, **own)
        biases = None if bias is None else keras.Variable(bias, **own)
        self.matrix: RowScorer = ClassMatrix(variable, biases, "index")
        self.alive = alive

    @classmethod
    def of(cls, class_embeddings: TensorLike, bias: TensorLike | None) -> "Rows":
        """Creates rows from arrays, which it checks; see `Index.build`."""
        embeddings, bias = _checked(class_embeddings, bias)
        return cls(embeddings, bias, np.ones(len(embeddings), bool))

    @classmethod
    def of_arrays(cls, arrays: dict[str, np.ndarray]) -> "Rows":
        """Restores rows from the result of `arrays`, without a copy."""
        bias = in_place(arrays["bias"]) if "bias" in arrays else None
        return cls(in_place(arrays["embeddings"]), bias, np.array(arrays["alive"]))

    def packed(self) -> "Rows":
        """Returns these rows with an 8-bit copy, a byte more per number, if it is faster."""
        [table] = self.matrix.shards()
        is_packed = isinstance(table, PackedTable)
        if is_packed or table.dim < _LEAST_WIDTH or not class_scan_ops.READS_PACKED_ROWS:
            return self
        rows = copy.copy(self)
        rows.matrix = ClassMatrix(table.embeddings, table.bias, "index", is_packed=True)
        return rows

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the state of the rows, by name."""
        embeddings, bias = self._values()
        biases = {} if bias is None else {"bias": bias.numpy()}
        return {"embeddings": embeddings.numpy(), **biases, "alive": self.alive}

    def added(self, class_embeddings: TensorLike, bias: TensorLike | None) -> "Rows":
        """Returns these rows and more rows, given as in `of`."""
        more, more_bias = self._checked(class_embeddings, bias, "add")
        embeddings, biases = self._values()
        alive = np.concatenate([self.alive, np.ones(len(more), bool)])
        biases = None if biases is None else tf.concat([biases, more_bias], axis=0)
        return Rows(tf.concat([embeddings, more], axis=0), biases, alive)

    def updated(
        self, ids: np.ndarray, class_embeddings: TensorLike, bias: TensorLike | None
    ) -> "Rows":
        """Replaces the rows of `ids`, int64 `[n]`; a `bias` of None keeps the biases."""
        embeddings, biases = self._values()
        if bias is None and biases is not None:
            bias = tf.gather(biases, ids)
        new, new_bias = self._checked(class_embeddings, bias, "update")
        self._require_distinct(ids, len(new))
        places = ids[:, np.newaxis]
        if biases is not None:
            biases = tf.tensor_scatter_nd_update(biases, places, new_bias)
        embeddings = tf.tensor_scatter_nd_update(embeddings, places, new)
        return Rows(embeddings, biases, self.alive)

    def removed(self, ids: np.ndarray) -> "Rows":
        """Returns these rows without those of `ids`, int64 `[n]`."""
        embeddings, bias = self._values()
        nothing = tf.fill([len(ids), self.matrix.dim], np.float32(np.nan))
        alive = self.alive.copy()
        alive[ids] = False
        embeddings = tf.tensor_scatter_nd_update(embeddings, ids[:, np.newaxis], nothing)
        return Rows(embeddings, bias, alive)

    def ids(self, ids: TensorLike) -> np.ndarray:
        """Returns the argument `ids` as int64 `[n]`, or raises a ValueError."""
        found = np.asarray(ids)
        if found.ndim != 1 or not (found.dtype.kind in "iu" or found.size == 0):
            raise ValueError(
                "`ids` must be integers [n]. Received: "
                f"{found.dtype.name} of shape {found.shape}."
            )
        found = found.astype(np.int64)
        wrong = (found < 0) | (found >= len(self.alive))
        wrong[~wrong] = ~self.alive[found[~wrong]]
        if wrong.any():
            raise ValueError(
                f"`ids` must be in [0, {len(self.alive)}) and not removed. Received: "
                f"{found[wrong][0]}. To restore a removed class, `add` it; it gets a new id."
            )
        return found

    def top_k(
        self,
        queries: tf.Tensor,
        k: int,
        exclude: TensorLike | None = None,
        allowed: TensorLike | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Like `exact_top_k`, but without removed classes."""
        scores, ids = exact_top_k(self.matrix, queries, k, exclude, allowed)
        if self.alive.all():
            return scores, ids
        found = scores > NOTHING  # false for NaN, which removed classes score
        return tf.where(found, scores, NOTHING), tf.where(found, ids, -1)

    def are_those_of(self, scorer: ClassScorer) -> bool:
        """Returns whether `scorer` has the same class rows, except those removed here."""
        products, own = scorer.as_products(), self.matrix
        if not products or (scorer.num_classes, scorer.dim) != (own.num_classes, own.dim):
            return False
        embeddings, bias = self._values()
        other, other_bias = products
        same = tf.reduce_all(embeddings == other, axis=1)
        for one, without in ((bias, other_bias), (other_bias, bias)):
            if one is not None:
                same &= one == (0.0 if without is None else without)
        return bool(same.numpy()[self.alive].all())

    def agree_in_a_sample(self, scorer: ClassScorer) -> bool:
        """Like `are_those_of`, for 64 to 127 of the classes of a `scorer` of the same shape."""
        ids = self._sample()
        zeros = tf.zeros([1, self.matrix.dim])  # as a query: its logits are the biases
        pairs = [
            (self.matrix.rows(ids), scorer.rows(ids)),
            (self.matrix.dots(zeros, ids[tf.newaxis]), scorer.dots(zeros, ids[tf.newaxis])),
        ]
        # Rows that the layer computes, such as normalized ones, may be rounded differently.
        return all(np.allclose(one, other, rtol=1e-5, atol=1e-7) for one, other in pairs)

    def _sample(self) -> tf.Tensor:
        """Returns ids of 64 to 127 classes, or of all if there are fewer."""
        alive = np.flatnonzero(self.alive)
        return tf.constant(alive[:: max(1, len(alive) // _SAMPLED_CLASSES)])

    @staticmethod
    def _require_distinct(ids: np.ndarray, num_rows: int) -> None:
        if num_rows != len(ids) or len(np.unique(ids)) != len(ids):
            raise ValueError(
                "`update` needs distinct ids, and one row per id. Received: "
                f"{len(ids)} ids, {len(np.unique(ids))} of them distinct, and {num_rows} rows."
            )

    def _values(self) -> tuple[tf.Tensor, tf.Tensor | None]:
        embeddings, bias = self.matrix.variables()
        return embeddings.read_value(), None if bias is None else bias.read_value()

    def _checked(
        self, class_embeddings: TensorLike, bias: TensorLike | None, method: str
    ) -> tuple[tf.Tensor, tf.Tensor | None]:
        new, new_bias = _checked(class_embeddings, bias)
        if new.shape[1] != self.matrix.dim or (bias is not None) != self.matrix.has_bias:
            raise ValueError(
                f"`{method}` needs rows of width {self.matrix.dim}, "
                f"{'with' if self.matrix.has_bias else 'without'} biases, like those of "
                f"`build`. Received: rows of width {new.shape[1]}, "
                f"{'without' if bias is None else 'with'} biases. Omit `bias` if the index has "
                "none, pass it if the index has biases, or build another index."
            )
        return new, new_bias


class QuantizedRows(Rows):
    """`Rows` with 8 bits per number, the arrays of `PackedClasses`; see `PackedTable`."""

    def __init__(
        self, codes: np.ndarray, scales: np.ndarray, alive: np.ndarray, dim: int, has_bias: bool
    ) -> None:
        self._codes, self._scales, self.alive = codes, scales, alive
        packed = PackedClasses(in_place(codes), in_place(scales))
        self._table = PackedTable.of(packed, (len(alive), dim), has_bias, "index")
        self.matrix = RowScorer(RowSource([self._table]))

    @classmethod
    def of(cls, class_embeddings: TensorLike, bias: TensorLike | None) -> "QuantizedRows":
        """As `Rows.of`. It converts an array in blocks."""
        if not isinstance(class_embeddings, np.ndarray):
            class_embeddings = tf.convert_to_tensor(class_embeddings)
        shape = tuple(class_embeddings.shape)
        rows_of("class_embeddings", class_embeddings[:1] if shape else class_embeddings)
        bias = _checked_bias(bias, shape[0])

        def part(first: int, end: int) -> tuple[tf.Tensor, tf.Tensor | None]:
            rows = rows_of("class_embeddings", class_embeddings[first:end])
            _require_finite("class_embeddings", rows, first)
            return rows, None if bias is None else bias[first:end]

        codes, scales = pack_rows(part, shape)
        return cls(codes, scales, np.ones(shape[0], bool), shape[1], bias is not None)

    @classmethod
    def restored(cls, arrays: dict[str, np.ndarray], dim: int, has_bias: bool) -> Any:
        """As `Rows.of_arrays`."""
        alive = np.array(arrays["alive"])
        return cls(arrays["codes"], arrays["scales"], alive, dim, has_bias)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"codes": self._codes, "scales": self._scales, "alive": self.alive}

    def added(self, class_embeddings: TensorLike, bias: TensorLike | None) -> "QuantizedRows":
        more = QuantizedRows.of(*self._checked(class_embeddings, bias, "add"))
        ids = len(self.alive) + np.arange(len(more.alive))
        return self._with(ids, more, np.concatenate([self.alive, more.alive]))

    def updated(
        self, ids: np.ndarray, class_embeddings: TensorLike, bias: TensorLike | None
    ) -> "QuantizedRows":
        if bias is None and self.matrix.has_bias:
            bias = self._table.biases(tf.constant(ids))
        new = QuantizedRows.of(*self._checked(class_embeddings, bias, "update"))
        self._require_distinct(ids, len(new.alive))
        return self._with(ids, new, self.alive)

    def removed(self, ids: np.ndarray) -> "QuantizedRows":
        alive = self.alive.copy()
        alive[ids] = False
        return self._with(ids, None, alive)

    def agree_in_a_sample(self, scorer: ClassScorer) -> bool:
        """Returns whether the rows of `scorer` are rounded to these."""
        ids = self._sample()
        errors = tf.abs(self.matrix.rows(ids) - scorer.rows(ids))
        # The layer may compute its rows, such as normalized ones, with other rounding errors.
        most = self._table.largest_errors(ids) + 1e-7
        zeros = tf.zeros([1, self.matrix.dim])  # as a query: its logits are the biases
        own, other = (one.dots(zeros, ids[tf.newaxis]) for one in (self.matrix, scorer))
        are_near = bool(tf.reduce_all(errors <= most[:, tf.newaxis]))
        return are_near and np.allclose(own, other, rtol=1e-5, atol=1e-7)

    def _with(
        self, ids: np.ndarray, new: "QuantizedRows | None", alive: np.ndarray
    ) -> "QuantizedRows":
        """Returns these rows, where those of `ids` are `new`, or None for rows of no class."""
        size = -(-len(alive) // GROUP_ROWS) * GROUP_ROWS
        codes = empty_aligned((size * padded_width(self.matrix.dim),), np.uint8)
        scales = empty_aligned((size * 5,), np.float32)
        source = new or self
        order = np.arange(len(ids))
        for to, old, other, nothing in zip(
            _parts(codes, scales),
            _parts(self._codes, self._scales),
            _parts(source._codes, source._scales),
            _NO_CLASS,
            strict=True,
        ):
            to[: len(old)], to[len(old) :] = old, nothing[:, np.newaxis]
            found = other[order // GROUP_ROWS, :, order % GROUP_ROWS] if new else nothing
            to[ids // GROUP_ROWS, :, ids % GROUP_ROWS] = found
        return QuantizedRows(codes, scales, alive, self.matrix.dim, self.matrix.has_bias)


def _parts(codes: np.ndarray, scales: np.ndarray) -> list[np.ndarray]:
    """Returns views of codes, scales and bounds, `[groups, n, GROUP_ROWS, m]`."""
    groups = len(scales) // (5 * GROUP_ROWS)
    parts = [codes, *np.split(scales, [2 * GROUP_ROWS * groups])]
    shapes = [(groups, -1, GROUP_ROWS, size) for size in (CODES_TOGETHER, 1, 1)]
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def best_of(
    scorer: ClassScorer, queries: tf.Tensor, ids: tf.Tensor, k: int | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the best `k` of `ids`, int64 `[B, m]`, of each query, as `Search.find` does.

    They are distinct, and padded with -1; `k` is at most m.
    """
    scores = tf.where(ids >= 0, scorer.dots(queries, ids), NOTHING)
    # Removed classes have the score NaN.
    scores, ids = highest(tf.where(scores > NOTHING, scores, NOTHING), ids, k)
    return scores, tf.where(scores > NOTHING, ids, -1)


def weight_maker(values: dict[str, np.ndarray]) -> AddWeight:
    """Returns a function that creates weights, with the values in `values`, if any."""

    def add_weight(
        name: str, shape: tuple[int, ...], dtype: str, initializer: Any, on_host: bool = False
    ) -> keras.Variable:
        value = in_place(values[name]) if name in values else initializer(shape, dtype)
        with tf.device("CPU:0" if on_host else None):
            return keras.Variable(value, dtype=dtype, trainable=False, name=name)

    return add_weight


def rows_of(name: str, value: TensorLike, dim: int | None = None) -> tf.Tensor:
    """Returns the argument `name` as float32 `[n, dim]` of any or this `dim`."""
    if isinstance(value, keras.layers.Layer):
        raise ValueError(
            f"`{name}` must be an array of rows. Received: layer '{value.name}'. Pass "
            "`layer.class_embeddings()`, and `layer.class_biases()` for `bias`."
        )
    shape = f"[n, {'dim' if dim is None else dim}]"
    rows = as_float32(name, value, shape)
    if rows.shape.rank != 2 or rows.shape[1] == 0 or (dim is not None and rows.shape[1] != dim):
        raise ValueError(f"`{name}` must be rows {shape}. Received: shape {rows.shape}.")
    return rows


def _checked(
    class_embeddings: TensorLike, bias: TensorLike | None
) -> tuple[tf.Tensor, tf.Tensor | None]:
    embeddings = rows_of("class_embeddings", class_embeddings)
    _require_finite("class_embeddings", embeddings)
    return embeddings, _checked_bias(bias, len(embeddings))


def _checked_bias(bias: TensorLike | None, num_rows: int) -> tf.Tensor | None:
    """Returns the bias of `num_rows` class rows as float32 `[num_rows]`, or None."""
    if not 1 <= num_rows <= MOST_CLASSES:
        raise ValueError(
            f"`class_embeddings` must have 1 to {MOST_CLASSES} rows. Received: {num_rows}."
        )
    if bias is None:
        return None
    checked = as_float32("bias", bias, f"[{num_rows}]")
    if checked.shape != [num_rows]:
        raise ValueError(
            f"`bias` must have one number for each of the {num_rows} rows. Received: "
            f"shape {checked.shape}."
        )
    _require_finite("bias", checked)
    return checked


def _require_finite(name: str, value: tf.Tensor, first: int = 0) -> None:
    """Raises a ValueError if rows of the argument `name`, from row `first`, are not finite."""
    if value.shape.num_elements() and not bool(tf.reduce_all(tf.math.is_finite(value))):
        row = first + int(tf.where(~tf.math.is_finite(value))[0, 0])
        raise ValueError(f"`{name}` must be finite. Received: NaN or infinity in row {row}.")


def in_place(array: np.ndarray) -> tf.Tensor:
    """Returns an array as a tensor without a copy, which `tf.constant` would make."""
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
