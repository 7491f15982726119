"""Where the class rows come from, and the form of the scores that they give."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import keras
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.classes import blockwise
from tf_largeout.classes.blockwise import BlockFunction
from tf_largeout.classes.class_sums import DenseRows
from tf_largeout.keras_internals import running_step, same_variable
from tf_largeout.ops import class_scan_ops, devices, row_dot_ops
from tf_largeout.ops.class_scan_ops import PackedClasses
from tf_largeout.ops.devices import handle_of
from tf_largeout.types import VariableOrHandle
from tf_largeout.variables import class_rows, replicas
from tf_largeout.variables.class_rows import RowShard, map_by_shard, on_each, split

Ranking = Literal["logit", "absolute", "taylor"]


@dataclasses.dataclass(frozen=True, eq=False)
class LogitForm:
    """The scores of classes, from features h, class rows w_c and biases b_c.

        o_c = scale <w_c, h> + b_c    with w_c and h scaled to length 1 if `unit_rows`
        s_c = o_c, |o_c| or |1 + o_c|    by `rank_by`
        cap * tanh(s_c / cap)    with a `cap`

    The cap does not change the order of the classes. So searches and ranks leave it out, and
    only the scores that they return are capped.

    Attributes:
        unit_rows: Whether the logits are cosines, times the scale.
        scale: A number, or a variable that has the log of it.
        cap: A number above 0, or None.
        rank_by: "logit", "absolute" or "taylor", as above.

    References:
        Gemma Team 2024, "Gemma 2: improving open language models at a practical size",
        section 2 (logit soft-capping).
    """

    unit_rows: bool = False
    scale: float | keras.Variable = 1.0
    cap: float | None = None
    rank_by: Ranking = "logit"

    def scale_value(self) -> float | tf.Tensor:
        """Returns the scale; float32 if a variable has its log."""
        if isinstance(self.scale, keras.Variable):
            return tf.exp(tf.convert_to_tensor(self.scale.value))
        return self.scale

    def queries(self, features: tf.Tensor) -> tf.Tensor:
        """Returns `scale * h`: inner products with the rows, plus biases, are the logits."""
        if not self.unit_rows and isinstance(self.scale, float) and self.scale == 1:
            return features
        queries = tf.cast(features, tf.float32)
        if self.unit_rows:
            queries = unit_length(queries)
        return tf.cast(queries * self.scale_value(), features.dtype)

    def scores(self, logits: tf.Tensor, padded: bool = False) -> tf.Tensor:
        """Returns scores of logits. With `padded`, the lowest float marks padding and stays."""
        if self.rank_by != "logit":
            shift = 1.0 if self.rank_by == "taylor" else 0.0
            scores = tf.abs(logits + shift) if shift else tf.abs(logits)
            lowest = logits.dtype.min
            logits = tf.where(logits > lowest, scores, lowest) if padded else scores
        return logits if self.cap is None else self.capped(logits)

    def capped(self, scores: tf.Tensor) -> tf.Tensor:
        """Applies the cap, if there is one; the lowest float and -inf stay as they are."""
        if self.cap is None:
            return scores
        capped = self.cap * tf.tanh(scores / self.cap)
        return tf.where(scores > scores.dtype.min, capped, scores)


def absolute_or_lowest(logits: tf.Tensor) -> tf.Tensor:
    """Returns `|logits|`, but leaves the lowest float, which marks padding, as it is."""
    return LogitForm(rank_by="absolute").scores(logits, padded=True)


def unit_length(vectors: tf.Tensor) -> tf.Tensor:
    """Returns vectors of length 1, `[..., dim]`; vectors of zeros stay zeros.

    As `tf.math.l2_normalize`, with its epsilon of 1e-12, but without overflow for large values.
    """
    return vectors * inverse_length(vectors)[..., tf.newaxis]


def inverse_length(vectors: tf.Tensor) -> tf.Tensor:
    """Returns `1 / max(|v|, 1e-6)`, `[...]`."""
    # Dividing by a constant first does not change a direction, but squares cannot overflow.
    largest = tf.maximum(tf.reduce_max(tf.abs(tf.stop_gradient(vectors)), axis=-1), 1)
    scaled = vectors / largest[..., tf.newaxis]
    # With `keepdims`, the gradient does not wait for a GPU.
    squares = tf.squeeze(tf.reduce_sum(tf.square(scaled), axis=-1, keepdims=True), axis=-1)
    return tf.math.rsqrt(tf.maximum(squares, 1e-12)) / largest


Products = tuple[tf.Variable, tf.Variable | None]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RowTable(RowShard):
    """The rows of all classes, or of a range of them. Its class 0 has the id `first`.

    The logits for queries h are `<w_c, h> + b_c`, with the rows w_c and the biases b_c. A
    subclass defines the methods that raise a NotImplementedError here.
    """

    dim: int
    has_bias: bool
    owner: str

    # Whether the rows are in bfloat16, and whether the ops of `class_scan_ops` can read them.
    is_rounded = has_own_pass = False

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        """See `RowSource.rows`."""
        raise NotImplementedError

    def values(self) -> tf.Tensor:
        """Returns all rows, `[n, dim]`."""
        raise NotImplementedError

    def dots_and_rows(
        self, queries: tf.Tensor, ids: tf.Tensor, shared_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """See `RowSource.dots_and_rows`."""
        raise NotImplementedError

    def reader(self) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor | None]]:
        """Returns a function that reads a block, int64 `[n]`: its rows, and biases if any."""
        raise NotImplementedError

    def variables(self) -> Products:
        """Returns the `tf.Variable`s of the rows and the biases on the current replica."""
        raise NotImplementedError

    def dots(self, queries: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """See `ClassScorer.dots`."""
        return self.dots_and_rows(queries, ids, tf.zeros([0], tf.int64))[0]

    def fold(
        self,
        queries: tf.Tensor,
        function: BlockFunction,
        state: Any,
        width: int | tf.Tensor = 1,
        classes: tf.Tensor | None = None,
    ) -> Any:
        """See `ClassScorer.fold_logits`; the ids are those of this table."""
        read = self.reader()
        block = blockwise.block_size(tf.shape(queries)[0], self.dim, width)
        count = self.num_rows if classes is None else tf.size(classes, tf.int64)
        if running_step().is_compiled:
            return self._fold_compiled(queries, function, state, block)

        def next_block(first: tf.Tensor, state: Any) -> tuple[tf.Tensor, Any]:
            end = tf.minimum(first + block, count)
            ids = tf.range(first, end) if classes is None else classes[first:end]
            rows, biases = read(ids)
            logits = tf.matmul(queries, rows, transpose_b=True)
            return end, function(state, logits if biases is None else logits + biases, ids)

        start, is_left = (tf.constant(0, tf.int64), state), lambda first, _: first < count
        return tf.while_loop(is_left, next_block, start, parallel_iterations=1)[1]

    def _fold_compiled(
        self, queries: tf.Tensor, function: BlockFunction, state: Any, block: tf.Tensor
    ) -> Any:
        """Implements `fold` over all classes for steps that XLA compiles."""
        read = self.reader()

        def add(state: Any, first: tf.Tensor, size: tf.Tensor) -> Any:
            ids = first + tf.range(size)
            rows, biases = read(ids)
            logits = tf.matmul(queries, rows, transpose_b=True)
            return function(state, logits if biases is None else logits + biases, ids)

        return blockwise.fold_blocks(self.num_rows, block, add, state)

    def top_k(self, queries: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """See `ClassScorer.top_k`; the ids are those of this table."""
        return blockwise.top_k(self.fold, queries, k)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Table(RowTable):
    """Class rows in one variable.

    Rows in bfloat16 are read in float32, and their gradients are float32. Passes over all
    classes convert the rows in blocks. A pass with gradients converts all rows at once, because
    the gradient takes as much memory. If another layer shares such rows, their gradients are
    bfloat16, because TensorFlow cannot add gradients of two dtypes.

    With `unit_rows`, `w_c` is the row of the variable, of any length, divided by its length.
    Each method normalizes the rows that it reads, so gradients stay sparse. A row of zeros has
    the cosine 0 with all features.

    Attributes:
        embeddings: Keras variable `[n, dim]`, one row per class.
        bias: Keras variable `[n]`, or None.
        unit_rows: As above.
        is_packed: Whether `top_k` reads a copy with 8 bits per number, for rows that no longer
            change. The first search makes the copy, which takes as long as a few searches.
            Results are bit-identical.

    Raises:
        ValueError: If rows in bfloat16 are on a GPU, unless the ops are stock operations.
    """

    embeddings: keras.Variable
    bias: keras.Variable | None
    unit_rows: bool = False
    is_packed: bool = False

    def __post_init__(self) -> None:
        if self.is_rounded and self._lacks_kernels():
            raise ValueError(
                f"Layer '{self.owner}' has class rows in bfloat16, which must be in the memory "
                f"of the CPU. Received: rows on {self.embeddings.value.device}. Build the "
                "model in `with tf.device('CPU'):`, or use float32 rows."
            )

    @property
    def is_rounded(self) -> bool:  # type: ignore[override]
        return class_rows.is_marked(self.embeddings)

    @property
    def has_own_pass(self) -> bool:  # type: ignore[override]
        return not (self.is_rounded or (self.unit_rows and self._lacks_kernels()))

    def _lacks_kernels(self) -> bool:
        """Returns whether ops run on the GPU of the rows that lack some of the arguments."""
        return devices.is_on_gpu(self.embeddings) and not devices.runs_stock()

    def variables(self) -> Products:
        """See `RowTable.variables`. They must be float32, or rows in bfloat16."""
        for weight in (None if self.is_rounded else self.embeddings, self.bias):
            if weight is not None and str(weight.dtype) != "float32":
                raise ValueError(
                    f"Training, `evaluate` and `top_k` need float32 weights in layer "
                    f"'{self.owner}'. Received: '{weight.name}' of dtype {weight.dtype}. Use "
                    "the dtype policy 'float32', 'mixed_bfloat16' or 'mixed_float16'."
                )
        return replicas.local_variable(self.embeddings), (
            None if self.bias is None else replicas.local_variable(self.bias)
        )

    def statistics(
        self,
        queries: tf.Tensor,
        labels: tf.Tensor,
        compute_dtype: str,
        true_logits: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns log partitions, logits of the labels, and their ranks in this table.

        With `true_logits`, the labels are classes of all tables.
        """
        first = 0 if true_logits is None else self.first
        rows, bias = self.variables()
        return class_scan_ops.class_statistics(
            queries, rows, bias, labels, true_logits, first, compute_dtype, self.unit_rows
        )

    def label_logits(self, queries: tf.Tensor, ids: tf.Tensor, compute_dtype: str) -> tf.Tensor:
        """Returns the `true_logits` of `statistics`, without a pass over the classes."""
        return class_scan_ops.label_logits(
            queries, *self.variables(), ids, compute_dtype, self.unit_rows
        )

    def top_k(self, queries: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if not self.has_own_pass:
            return super().top_k(queries, k)
        packed = self._packed if self.is_packed else None
        rows, bias = self.variables()
        return class_scan_ops.class_top_k(queries, rows, bias, k, packed, self.unit_rows)

    @functools.cached_property
    def _packed(self) -> PackedClasses:
        with tf.init_scope():  # packs at once, also while a graph is traced
            return class_scan_ops.pack_classes(*self.variables())

    def as_read(self, rows: tf.Tensor) -> tf.Tensor:
        """Returns rows of the variable, `[..., dim]`, in the form in which they are scored."""
        return unit_length(rows) if self.unit_rows else rows

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        return self.as_read(self._stored_rows(ids))

    def _stored_rows(self, ids: tf.Tensor) -> tf.Tensor:
        if not self.is_rounded:
            return tf.gather(self.variables()[0], ids)
        nothing = tf.zeros([0, self.dim]), tf.zeros([0, 0], tf.int64)
        flat, rows = tf.reshape(ids, [-1]), self._rows_of_ops()
        rows = row_dot_ops.row_dots_and_rows(nothing[0], rows, None, nothing[1], flat)[1]
        return tf.reshape(rows, tf.concat([tf.shape(ids), [self.dim]], axis=0))

    def _rows_of_ops(self) -> VariableOrHandle:
        """Returns the embeddings for `row_dot_ops`."""
        embeddings = self.variables()[0]
        if self.is_rounded and class_rows.is_shared(self.embeddings):
            return _with_bfloat16_gradient(embeddings)
        return embeddings

    def _all_stored_rows(self) -> tf.Tensor:
        """Returns all rows of the variable, float32 `[n, dim]`."""
        embeddings = self.variables()[0]
        if not self.is_rounded:
            return tf.convert_to_tensor(embeddings)
        if class_rows.is_shared(self.embeddings):
            return tf.cast(embeddings, tf.float32)
        return class_rows.widened(embeddings)

    def dense(self) -> DenseRows:
        """Returns all rows, with gradients."""
        rows, bias = self._all_stored_rows(), self.variables()[1]
        bias = None if bias is None else tf.convert_to_tensor(bias)
        return DenseRows(self, rows, bias, self.as_read)

    def values(self) -> tf.Tensor:
        if self.is_rounded:
            return self.as_read(self._all_stored_rows())
        rows = tf.convert_to_tensor(self.embeddings.value)
        return self.as_read(rows) if self.unit_rows else rows

    def logits(self, queries: tf.Tensor) -> tf.Tensor:
        """Returns the logits of all classes, `[..., n]`, in the dtype of the queries."""
        embeddings = tf.cast(self.values(), queries.dtype)
        logits = tf.tensordot(queries, embeddings, axes=[[-1], [1]])
        return logits if self.bias is None else logits + tf.cast(self.bias.value, queries.dtype)

    def dots_and_rows(
        self, queries: tf.Tensor, ids: tf.Tensor, shared_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        if self.unit_rows:
            return self._unit_dots_and_rows(queries, ids, shared_ids)
        embeddings, bias = self.variables()
        if self.is_rounded:
            embeddings = self._rows_of_ops()
        logits, rows, biases = row_dot_ops.row_dots_and_rows(
            queries, embeddings, bias, ids, shared_ids
        )
        return logits, rows, tf.zeros(tf.shape(shared_ids)) if biases is None else biases

    def _unit_dots_and_rows(
        self, queries: tf.Tensor, ids: tf.Tensor, shared_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The length of a row is computed once, even if its class is in `ids` several times."""
        bias = self.variables()[1]
        products, rows, _ = row_dot_ops.row_dots_and_rows(
            queries, self._rows_of_ops(), None, ids, shared_ids
        )
        with devices.host_ids_scope():
            is_class = ids >= 0
            flat = tf.reshape(tf.maximum(ids, 0), [-1])
            is_compiled = running_step().is_compiled
            # XLA needs to know the number of distinct ids.
            distinct, places = (flat, None) if is_compiled else tf.unique(flat)
        scales = inverse_length(self._stored_rows(distinct))
        scales = scales if places is None else tf.gather(scales, places)
        logits = tf.where(is_class, products, 0) * tf.reshape(scales, tf.shape(ids))
        biases = tf.zeros(tf.shape(shared_ids))
        if bias is not None:
            both = tf.gather(bias, tf.concat([flat, shared_ids], axis=0))
            of_own, biases = tf.split(both, [tf.size(flat), tf.size(shared_ids)])
            logits += tf.reshape(of_own, tf.shape(ids))
        lowest = logits.dtype.min
        return tf.where(is_class, logits, lowest), self.as_read(rows), biases

    def reader(self) -> Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor | None]]:
        embeddings, bias = self.variables()

        def read(ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor | None]:
            # Without our ops and without a gradient of bfloat16 rows: exports have this loop.
            rows = self.as_read(tf.cast(tf.gather(embeddings, ids), tf.float32))
            return rows, None if bias is None else tf.gather(bias, ids)

        return read

    def each_replica(self, function: Callable[[], Any]) -> None:
        """Runs `function()` on each replica, see `ClassScorer.each_replica`."""
        strategy = getattr(self.embeddings.value, "distribute_strategy", None)

        @tf.function
        def on_all_replicas() -> None:
            (strategy or tf.distribute.get_strategy()).run(function)

        on_all_replicas()

    def on_rows_changed(self, function: Callable[[tf.Tensor, tf.Tensor], None]) -> None:
        """Calls a method, `function(ids, old_rows)`, after updates; see `replicas.observe`."""
        replicas.observe(self.embeddings, function)


class RowSource:
    """The rows of the classes, in one or more tables: ranges of the classes, in order.

    With several tables, ops on the device of each table compute its part of every result. So
    only ids, queries, scores and the rows that are used move between devices, never a table,
    except in `values` and `as_products`. A subclass can compute the rows instead. `shards`, and
    all that needs gradients, are only for `Table`s.
    """

    def __init__(self, tables: Sequence[Any]) -> None:
        self._tables, first = list(tables), tables[0]
        self.num_classes = sum(table.num_rows for table in tables)
        self.dim, self.has_bias, self.owner = first.dim, first.has_bias, first.owner
        self.is_rounded = first.is_rounded

    def shards(self) -> list[Table]:
        """Returns the `Table`s, for search structures; a ValueError if there are none."""
        return self._tables

    def tables(self) -> list[RowTable]:
        """Returns the tables, up to date, for passes without gradients."""
        return self._tables

    def dense(self, training: bool = True) -> list[DenseRows]:
        """Returns all rows as tensors, table by table; with gradients if `training`."""
        return on_each(self.shards(), lambda table: table.dense())

    def own_passes(self, training: bool = False) -> list[Table] | None:
        """Returns the tables for passes of our ops, or None if these cannot read a table."""
        tables: list[Any] = self.tables()
        for table in tables:
            if not table.has_own_pass or (training and table.unit_rows):
                return None
        return tables

    def as_products(self) -> Products:
        """See `ClassScorer.as_products`."""
        tables = self.shards()
        if len(tables) == 1 and not (self.is_rounded or tables[0].unit_rows):
            return tables[0].variables()
        return new_rows(self.values(), self.biases(), self.owner).as_products()

    def read(self, first: int, end: int) -> tuple[tf.Tensor, tf.Tensor | None]:
        """Returns a range of the rows, float32 `[n, dim]`, and of the biases or None."""
        ids, found = tf.range(first, end, dtype=tf.int64), []
        for table in self._tables:
            own = tf.boolean_mask(ids, table.contains(ids)) - table.first
            found.append(table.reader()(own))
        rows, biases = zip(*found, strict=True)
        return joined(rows, 0), joined(biases, 0) if self.has_bias else None

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns rows `[..., dim]` as they are scored, float32, with a sparse gradient."""
        if len(self._tables) == 1:
            return self._tables[0].rows(ids)
        flat = tf.reshape(self.checked(ids), [-1])
        rows = map_by_shard(self._tables, flat, lambda table, own: table.rows(own))
        return tf.reshape(rows, tf.concat([tf.shape(ids), [self.dim]], axis=0))

    def values(self) -> tf.Tensor:
        """Returns all rows, `[num_classes, dim]`."""
        return joined([table.values() for table in self.tables()], axis=0)

    def biases(self) -> tf.Tensor | None:
        """See `ClassScorer.biases`. It reads no rows."""
        if not self.has_bias:
            return None
        biases: list[Any] = [table.bias for table in self._tables]
        return joined([tf.convert_to_tensor(bias.value) for bias in biases], axis=0)

    def logits(self, queries: tf.Tensor) -> tf.Tensor:
        """See `ClassScorer.logits`."""
        if len(self._tables) == 1:
            return self._tables[0].logits(queries)
        return joined(on_each(self.shards(), lambda table: table.logits(queries)), axis=-1)

    def dots_and_rows(
        self, queries: tf.Tensor, ids: tf.Tensor, shared_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """See `ClassScorer.dots_and_rows`.

        One op reads a table. Its gradient is one `IndexedSlices` with a row per distinct class.
        """
        if len(self._tables) == 1:
            return self._tables[0].dots_and_rows(queries, ids, shared_ids)
        ids = self.checked(ids)
        places, parts = split(self._tables, self.checked(shared_ids))
        logits, rows, biases = None, [], []
        for table, part in zip(self._tables, parts, strict=True):
            own_ids = table.to_local(ids)
            with table.place():
                found = table.dots_and_rows(queries, own_ids, part)
            logits = (
                found[0] if logits is None else tf.where(table.contains(ids), found[0], logits)
            )
            rows.append(found[1])
            biases.append(found[2])
        all_rows = tf.dynamic_stitch(places, rows)
        return (
            logits,
            tf.ensure_shape(all_rows, [shared_ids.shape[0], self.dim]),
            tf.ensure_shape(tf.dynamic_stitch(places, biases), shared_ids.shape),
        )

    def checked(self, ids: tf.Tensor) -> tf.Tensor:
        """Checks that no id is too high. Ops reject ids below -1, and with one table both."""
        if len(self._tables) == 1:
            return ids
        highest = tf.reduce_max(tf.pad(tf.reshape(ids, [-1]), [[0, 1]], constant_values=-1))
        expected = f"Classes of layer '{self.owner}' must be below {self.num_classes}, but got"
        check = checks.require(highest < self.num_classes, [expected, highest])
        return checks.passed([check], ids)


def tables_of(
    embeddings: Sequence[keras.Variable],
    biases: Sequence[keras.Variable] | None,
    owner: str,
    unit_rows: bool = False,
    is_packed: bool = False,
) -> list[Table]:
    """Returns tables of rows `[n_i, dim]` and biases `[n_i]`, in the order of the classes."""
    firsts = itertools.accumulate((rows.shape[0] for rows in embeddings), initial=0)
    return [
        Table(
            first=first,
            num_rows=rows.shape[0],
            number=number,
            num_shards=len(embeddings),
            device_anchor=rows if len(embeddings) > 1 else None,
            dim=rows.shape[1],
            has_bias=bool(biases),
            owner=owner,
            embeddings=rows,
            bias=biases[number] if biases else None,
            unit_rows=unit_rows,
            is_packed=is_packed,
        )
        for number, (first, rows) in enumerate(zip(firsts, embeddings, strict=False))
    ]


def joined(parts: Sequence[tf.Tensor], axis: int) -> tf.Tensor:
    """Returns `tf.concat(parts, axis)`, without an op for one part."""
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=axis)


def new_rows(embeddings: tf.Tensor, bias: tf.Tensor | None, owner: str) -> RowSource:
    """Returns rows in new float32 variables on this machine."""

    def variable(values: tf.Tensor, name: str) -> keras.Variable:
        return keras.Variable(
            values, dtype="float32", trainable=False, autocast=False, name=name
        )

    biases = None if bias is None else [variable(bias, "bias")]
    return RowSource(tables_of([variable(embeddings, "embeddings")], biases, owner))


def _with_bfloat16_gradient(rows: tf.Variable) -> tf.Tensor:
    """Returns the handle of rows, for ops with float32 gradients; the gradient is bfloat16.

    The gradient of a lookup by the layer that shares the rows is bfloat16. TensorFlow adds only
    gradients of the same dtype. So these are rounded to the nearest bfloat16.
    """

    @tf.custom_gradient
    def narrowed(handle: tf.Tensor) -> Any:
        def gradient(d_rows: tf.IndexedSlices) -> tf.IndexedSlices:
            values = tf.cast(d_rows.values, tf.bfloat16)
            return tf.IndexedSlices(values, d_rows.indices, d_rows.dense_shape)

        return tf.identity(handle), gradient

    handle = handle_of(rows, watch=True)
    return same_variable(narrowed(handle), handle)
