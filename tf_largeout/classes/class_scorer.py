"""Scorers of the classes, for losses, metrics, samplers and retrieval.

`RowScorer` combines the rows of a `RowSource` with a `LogitForm`.
"""

import copy
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf
from typing_extensions import Self

from tf_largeout.classes import blockwise
from tf_largeout.classes.best_scores import NOTHING, highest
from tf_largeout.classes.blockwise import BlockFunction
from tf_largeout.classes.class_sums import DenseRows
from tf_largeout.classes.row_sources import (
    LogitForm,
    Products,
    RowSource,
    RowTable,
    Table,
    tables_of,
)
from tf_largeout.types import Elementwise
from tf_largeout.variables.class_rows import on_each


class ClassStatistics:
    """Exact statistics over all classes of a batch of `B` examples with `L` labels each.

    Attributes:
        log_partition: float32 `[B]`, log of the sum over classes of `exp(score)`.
        true_logits: float32 `[B, L]`, scores of the labels; 0 at padding.
        ranks: int64 `[B, L]`, how many classes score higher than the label, `num_classes` at
            padding; None if not known. Of equal scores, the lower id ranks higher. The argument
            can be a function that computes them when they are read, in another pass.
    """

    def __init__(
        self,
        log_partition: tf.Tensor,
        true_logits: tf.Tensor,
        ranks: tf.Tensor | Callable[[], tf.Tensor] | None,
    ) -> None:
        self.log_partition, self.true_logits, self._ranks = log_partition, true_logits, ranks

    @functools.cached_property
    def ranks(self) -> tf.Tensor | None:
        """See the class."""
        return self._ranks() if callable(self._ranks) else self._ranks


class ClassScorer:
    """The base class of objects that score the classes of an output layer.

    Losses, metrics, samplers and indexes access the classes only through it. A subclass
    defines `rows`, `values`, `logits`, `dots` and `fold_logits`. The other methods are built
    on `fold_logits`; a subclass overrides those that it can compute faster. If its logits can
    have other forms than the plain one, the subclass applies `form.scores` to them.

    Features are vectors whose products with the class rows are the logits: the inputs of the
    layer after `form.queries`.

    Args:
        num_classes: Number of classes.
        dim: Width of the features.
        has_bias: Whether the classes have biases.
        owner: Name of the layer, for messages.
        form: The form of the scores; by default the logits.

    Attributes:
        num_classes, dim, has_bias, form: As above.
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        has_bias: bool,
        owner: str,
        form: LogitForm | None = None,
    ) -> None:
        self.num_classes, self.dim, self.has_bias = num_classes, dim, has_bias
        self._owner, self.form = owner, form or LogitForm()

    # Whether inner products with the class rows, plus biases, rank the classes.
    scores_are_products = True
    # Whether the rows are in bfloat16 (`variables.class_rows`).
    is_rounded = False

    def with_form(self, **changes: Any) -> Self:
        """Returns the same classes, with `changes` in the `LogitForm` of their scores."""
        other = copy.copy(self)
        other.form = dataclasses.replace(self.form, **changes)
        return other

    def shards(self) -> list[Table]:
        """Returns the tables of the class rows, over which search structures are built.

        If the rows are not in variables, it raises a ValueError.
        """
        raise self._missing("shards")

    def frozen(self) -> "ClassScorer":
        """Returns a scorer with the current rows, for exports, if rows are computed."""
        return self

    def product_rows(self) -> RowSource | None:
        """Returns rows in variables, whose products with the features are the plain logits.

        Exports and indexes use them. They are variables of the layer if it has such variables.
        The result is None if inner products cannot score the classes.
        """
        return None

    def require_rows(self, received: str, ranking: str = "logit") -> RowSource:
        """Returns `product_rows` for an export; a ValueError if it has none for `ranking`.

        `received` is the argument that needs them, and its value. It supports only "logit".
        """
        rows, name = self.product_rows(), received.partition("=")[0]
        if ranking == "logit" and rows is not None:
            return rows
        reason = "whose scores are not inner products"
        if ranking != "logit":
            reason = f"which ranks classes by {ranking!r}, as its loss does: an index ranks by "
            reason += "the logit"
        raise ValueError(
            f"`{name}` must be None for layer '{self._owner}', {reason}. Received: {received}. "
            f"Omit `{name}`."
        )

    def as_products(self) -> Products | None:
        """Returns `product_rows` as `(embeddings, bias or None)` of one table, or None."""
        rows = self.product_rows()
        return None if rows is None else rows.as_products()

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the embeddings, float32 `[..., dim]`, of `ids`, int64 `[...]`."""
        raise self._missing("rows")

    def values(self) -> tf.Tensor:
        """Returns all embeddings, `[num_classes, dim]`, without the biases."""
        raise self._missing("values")

    def biases(self) -> tf.Tensor | None:
        """Returns the biases of all classes, `[num_classes]`; None without biases."""
        return None

    def logits(self, features: tf.Tensor) -> tf.Tensor:
        """Returns the logits of all classes, in the dtype of the features `[..., dim]`.

        They are stateless TensorFlow operations, which TensorFlow prunes if they are unused.
        """
        raise self._missing("logits")

    def dots(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Returns the logits of each example's own classes, see `ops.row_dots`.

        Ids and logits are `[B, n]`. Padding is -1, with the lowest float as logit, without a
        gradient.
        """
        raise self._missing("dots")

    def dots_and_rows(
        self, features: tf.Tensor, ids: tf.Tensor, shared_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns `dots`, and the rows and biases of classes that all examples share.

        Samples are scored by it. The scores of the shared classes, int64 `[m]`, are
        `form.scores` of the products with their rows, `[m, dim]`, plus their biases, `[m]`,
        zeros if the classes have none.
        """
        raise self._missing("dots_and_rows")

    def fold_logits(
        self,
        features: tf.Tensor,
        function: BlockFunction,
        state: Any,
        *,
        width: int | tf.Tensor = 1,
        classes: tf.Tensor | None = None,
    ) -> Any:
        """Passes over the logits of all classes in blocks, for results that no op computes.

        It gathers class rows and never copies the matrix. It stores `B * block * width` numbers
        at a time, about 16 MiB. With equal shapes of the features and equal `width`, the blocks
        are the same.

        Args:
            features: Float `[B, dim]`.
            function: `(state, logits, ids) -> state`, called for each block in turn: float32
                `[B, n]`, and int64 `[n]`, the classes, rising by 1 if `classes` is None.
            state: The state for the first block: tensors in any structure. They keep their
                shapes.
            width: How many numbers `function` computes from each logit.
            classes: int64 `[m]`, ids of the classes to pass over, rising; None for all.

        Returns:
            The state after the last block.
        """
        raise self._missing("fold_logits")

    def statistics(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        compute_dtype: str = "float32",
        training: bool = False,
    ) -> ClassStatistics:
        """Returns the exact `ClassStatistics` of a batch.

        Args:
            features: Float `[B, dim]`.
            labels: int64 `[B, L]`, padded with -1.
            compute_dtype: "float32" or "bfloat16", see `ops.class_statistics`. If the classes
                do not support it, a ValueError is raised.
            training: Whether the step trains: gradients are needed, and ranks rarely.
        """
        self._require_float32(compute_dtype)
        fold = functools.partial(self.fold_logits, features, width=tf.shape(labels)[1])

        def add(
            state: tuple[tf.Tensor, tf.Tensor], scores: tf.Tensor, ids: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor]:
            log_partition, true_scores = state
            true_scores = blockwise.at_labels(scores, ids, labels, true_scores)
            return blockwise.with_block(log_partition, scores), true_scores

        shape = tf.shape(labels)
        log_partition, true_scores = fold(add, (tf.fill(shape[:1], NOTHING), tf.zeros(shape)))

        def ranks() -> tf.Tensor:
            if self.form.cap is None:
                return blockwise.ranks(fold, labels, true_scores, self.num_classes)
            fixed = tf.stop_gradient(features)
            return self.with_form(cap=None).statistics(fixed, labels).ranks

        return ClassStatistics(log_partition, true_scores, ranks)

    def ranked_scores(
        self, features: tf.Tensor, ids: tf.Tensor, compute_dtype: str = "float32"
    ) -> tf.Tensor:
        """Returns the scores that `statistics` uses to rank classes, bit-identical to those.

        They are float32 `[B, n]`, without the cap; any value at padding. `ids` is int64 `[B,
        n]`, padded with -1, and has as many columns as the labels of the `statistics`.
        """

        def add(found: tf.Tensor, scores: tf.Tensor, block: tf.Tensor) -> tf.Tensor:
            return blockwise.at_labels(scores, block, ids, found)

        shape, ranked = tf.shape(ids), self.with_form(cap=None)
        return ranked.fold_logits(features, add, tf.zeros(shape), width=shape[1])

    def exact_scores(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        function: Elementwise = tf.identity,
        others_only: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns `log sum_c exp(f(o_c))` and `f(o_y)`, with gradients, in O(num_classes).

        f is elementwise and differentiable. Gradients of the class embeddings and biases are
        dense. The results are float32 `[B]`, the lowest float if no class is left, and float32
        `[B, L]`, 0 at padding. With `others_only`, the sum leaves out the labels of the
        example.
        """
        raise self._missing("exact_scores")

    def sum_over_classes(
        self, features: tf.Tensor, function: Elementwise, training: bool = False
    ) -> tf.Tensor:
        """Returns the sum of `function(logit)` over all classes, float32 `[B]`.

        The function is elementwise and differentiable. In training, which needs gradients, it
        raises a ValueError if the classes support only sums without gradients.
        """
        if training:
            raise ValueError(
                f"Layer '{self._owner}' cannot be trained with a sum over the logits of all "
                "classes, which label smoothing and soft targets need. Use a `LargeOutput`, or "
                "leave them out of the loss."
            )

        def add(total: tf.Tensor, logits: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
            return total + tf.reduce_sum(function(logits), axis=1)

        return self.fold_logits(features, add, tf.zeros(tf.shape(features)[:1]))

    def log_partitions(
        self, features: tf.Tensor, log_weight: Elementwise | None = None
    ) -> tf.Tensor:
        """Returns the log of the sum over all classes of `exp(log_weight(logit))`, `[B]`."""
        batch = tf.shape(features)[0]
        if log_weight is None:
            return self.statistics(features, tf.zeros([batch, 0], tf.int64)).log_partition

        def add(found: tf.Tensor, scores: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
            return blockwise.with_block(found, log_weight(scores))

        return self.fold_logits(features, add, tf.fill([batch], NOTHING))

    def mean_logits(self, features: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Returns the mean of all logits, float32 `[B]`; see `sum_over_classes`."""
        return self.sum_over_classes(features, tf.identity, training) / self.num_classes

    def top_k(self, features: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the `k` classes with the highest logits, exactly, see `ops.class_top_k`.

        Features must be finite. Scores and ids are `[B, k]`, best first; lower ids win ties.
        """
        return self.top_k_of(features, None, k)

    def top_k_of(
        self, features: tf.Tensor, classes: tf.Tensor | None, k: int | tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Like `top_k`, of some classes, int64 `[m]`, rising; None for all; k is at most m.

        Only the rows of those classes are read. Features that are not finite, and scores that
        overflow, raise a `tf.errors.InvalidArgumentError`.
        """
        fold = self.with_form(cap=None).fold_logits
        scores, ids = blockwise.top_k(fold, features, k, classes)
        return self.form.capped(scores), ids

    def ranked_by(self, ranking: str) -> Self:
        """Returns the classes, scored by the values that rank them, see `LogitForm.rank_by`.

        If the scores are log-probabilities, other values than "logit" raise a ValueError.
        """
        if ranking == self.form.rank_by:
            return self
        if not self.scores_are_products:
            raise ValueError(
                f"Layer '{self._owner}' returns log-probabilities, which are at most 0. "
                "Ranked by absolute value, the least likely class would come first. Received: "
                "absolute=True. Leave `absolute` out for a `HierarchicalOutput`."
            )
        return self.with_form(rank_by=ranking)

    def each_replica(self, function: Callable[[], Any]) -> None:
        """Runs `function()` on each replica that has the rows, outside a training step."""
        function()

    def _require_float32(self, compute_dtype: str) -> None:
        if compute_dtype != "float32":
            raise ValueError(
                f"Layer '{self._owner}' supports only compute_dtype='float32'. Received: a "
                f"loss with compute_dtype={compute_dtype!r}. Leave it out of the loss."
            )

    def _missing(self, method: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} must define `{method}`.")


class RowScorer(ClassScorer):
    """Classes with rows and biases, scored as a `LogitForm` says.

    Each table of the rows computes its part of every result, on its device. The parts are then
    combined: log partitions by a logsumexp, ranks by a sum, the best classes by their order.

    Logits of given classes, ranks and `top_k` are bit-identical for any number of tables. The
    same holds for the gradients of a sampled loss with one label per example. Sums over all
    classes, and sums over classes of one example in different tables, are computed in another
    order, so their last bits can differ. The last bits of the scores of `fold_logits` and
    `top_k_of`, and of absolute scores, can also differ: `tf.matmul` computes these scores, and
    its last bits depend on the number of classes in a call.
    """

    def __init__(self, source: RowSource, form: LogitForm | None = None) -> None:
        super().__init__(source.num_classes, source.dim, source.has_bias, source.owner, form)
        self.source, self.is_rounded = source, source.is_rounded

    def shards(self) -> list[Table]:
        return self.source.shards()

    def variables(self) -> Products:
        """Returns the `Table.variables` of the one table; a ValueError if there are several."""
        tables = self.source.tables()
        if len(tables) > 1:
            raise ValueError(
                f"The class rows of layer '{self._owner}' are in {len(tables)} shards. Read "
                "the variables of each of its `shards()`."
            )
        return tables[0].variables()

    def frozen(self) -> "RowScorer":
        return RowScorer(RowSource(self.source.tables()), self.form)

    def product_rows(self) -> RowSource:
        return self.source

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        return self.source.rows(ids)

    def values(self) -> tf.Tensor:
        return self.source.values()

    def biases(self) -> tf.Tensor | None:
        return self.source.biases()

    def logits(self, features: tf.Tensor) -> tf.Tensor:
        return self.form.scores(self.source.logits(features))

    def dots(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        return self.dots_and_rows(features, ids, tf.zeros([0], tf.int64))[0]

    def dots_and_rows(
        self, features: tf.Tensor, ids: tf.Tensor, shared_ids: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        logits, rows, biases = self.source.dots_and_rows(features, ids, shared_ids)
        return self.form.scores(logits, padded=True), rows, biases

    def fold_logits(
        self,
        features: tf.Tensor,
        function: BlockFunction,
        state: Any,
        *,
        width: int | tf.Tensor = 1,
        classes: tf.Tensor | None = None,
    ) -> Any:
        """Like `ClassScorer.fold_logits`, on the devices of the rows, table by table."""
        features = tf.cast(features, tf.float32)
        for table in self.source.tables():

            def of_scores(
                state: Any, logits: tf.Tensor, ids: tf.Tensor, table: RowTable = table
            ) -> Any:
                ids = ids + table.first if table.first else ids
                return function(state, self.form.scores(logits), ids)

            own = classes
            if classes is not None and table.num_shards > 1:
                own = tf.boolean_mask(classes, table.contains(classes)) - table.first
            with table.place():
                state = table.fold(features, of_scores, state, width, own)
        return state

    def statistics(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        compute_dtype: str = "float32",
        training: bool = False,
    ) -> ClassStatistics:
        """Like `ClassScorer.statistics`, in one pass of our ops over each table if possible.

        Otherwise, a pass in blocks computes the statistics, and in training `exact_scores`.
        Another pass then computes ranks if they are used.
        """
        features, labels = tf.cast(features, tf.float32), self.source.checked(labels)
        passes = self.source.own_passes(training) if self._is_plain else None
        if passes is not None and passes[0].unit_rows:
            self._require_float32(compute_dtype)
            return self._with_exact_gradient(passes, features, labels)
        if passes is not None:
            return ClassStatistics(
                *self._by_passes(passes, features, labels, compute_dtype, training)
            )
        if not training:
            return super().statistics(features, labels, compute_dtype)
        self._require_float32(compute_dtype)
        found, ranked = self.exact_scores(features, labels), self.with_form(cap=None)
        fixed = tf.stop_gradient(features)
        return ClassStatistics(*found, lambda: ranked.statistics(fixed, labels).ranks)

    def _by_passes(
        self,
        passes: Sequence[Table],
        features: tf.Tensor,
        labels: tf.Tensor,
        compute_dtype: str,
        training: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the arguments of `ClassStatistics`.

        With several tables, the logits of the labels are computed first, bit-identical to
        those of the pass. So one pass over each table can also rank the labels of others. In
        training, one pass computes log partitions and logits, with one gradient. If ranks are
        used, another pass computes them.
        """
        if len(passes) == 1:
            return passes[0].statistics(features, labels, compute_dtype)

        def of_own_labels(one: Table) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            return one.statistics(features, one.to_local(labels), compute_dtype)

        ranked, own = features, []
        if training:
            ranked, own = tf.stop_gradient(features), on_each(passes, of_own_labels)
            true_logits = tf.add_n([one[1] for one in own])
        else:
            true_logits = self.ranked_scores(features, labels, compute_dtype)
        fixed = tf.stop_gradient(true_logits)
        found = on_each(
            passes, lambda one: one.statistics(ranked, labels, compute_dtype, fixed)
        )
        log_partitions = _log_sum([one[0] for one in own or found])
        return log_partitions, true_logits, tf.add_n([one[2] for one in found])

    def _with_exact_gradient(
        self, passes: Sequence[Table], features: tf.Tensor, labels: tf.Tensor
    ) -> ClassStatistics:
        """Returns statistics by passes without gradients; those are of `exact_scores`."""

        @tf.custom_gradient
        def compute(features: tf.Tensor) -> Any:
            def gradient(
                *upstream: tf.Tensor, variables: Sequence[tf.Variable] | None = None
            ) -> Any:
                with tf.GradientTape() as tape:
                    tape.watch(features)
                    found = self.exact_scores(features, labels)
                sources = [features, *(variables or [])]
                of_features, *others = tape.gradient(found, sources, list(upstream[:2]))
                return of_features if variables is None else (of_features, others)

            return self._by_passes(passes, features, labels, "float32"), gradient

        return ClassStatistics(*compute(features))

    def ranked_scores(
        self, features: tf.Tensor, ids: tf.Tensor, compute_dtype: str = "float32"
    ) -> tf.Tensor:
        """Like `ClassScorer.ranked_scores`, if possible without a pass; 0 at padding."""
        features = tf.cast(features, tf.float32)
        passes = self.source.own_passes() if self.form.rank_by == "logit" else None
        if passes is None:
            return super().ranked_scores(features, ids)
        return _total(
            on_each(
                passes,
                lambda one: one.label_logits(features, one.to_local(ids), compute_dtype),
            )
        )

    def exact_scores(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        function: Elementwise = tf.identity,
        others_only: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        term = self._of_scores(function)

        def of_rows(rows: DenseRows) -> tuple[tf.Tensor, tf.Tensor]:
            return rows.exact_scores(features, labels, term, others_only)

        log_partitions, scores = zip(*on_each(self.source.dense(), of_rows), strict=True)
        return _log_sum(log_partitions), _total(scores)

    def sum_over_classes(
        self, features: tf.Tensor, function: Elementwise, training: bool = False
    ) -> tf.Tensor:
        features, term = tf.cast(features, tf.float32), self._of_scores(function)
        if training:
            return _total(
                on_each(self.source.dense(), lambda rows: rows.sums(features, term=term)[1])
            )

        def add(total: tf.Tensor, logits: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
            return total + tf.reduce_sum(term(logits), axis=1)

        zeros = tf.zeros(tf.shape(features)[:1])
        tables = self.source.tables()
        return _total(on_each(tables, lambda table: table.fold(features, add, zeros)))

    def mean_logits(self, features: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Like `ClassScorer.mean_logits`, from the means of rows and biases if possible."""
        if not self._is_plain or (self.source.is_rounded and not training):
            return super().mean_logits(features, training)
        features = tf.cast(features, tf.float32)

        def of_rows(rows: DenseRows) -> tf.Tensor:
            share = rows.shard.num_rows / self.num_classes
            means = rows.mean_logits(features)
            return means if share == 1 else share * means

        return _total(on_each(self.source.dense(training), of_rows))

    def top_k(self, features: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if self.form.rank_by != "logit":
            return self.top_k_of(features, None, k)

        def of_table(table: RowTable) -> tuple[tf.Tensor, tf.Tensor]:
            if table.num_shards == 1:
                return table.top_k(features, k)
            most = table.num_rows
            scores, ids = table.top_k(
                features, tf.minimum(k, most) if tf.is_tensor(k) else min(k, most)
            )
            return scores, ids + table.first

        found = on_each(self.source.tables(), of_table)
        scores, ids = found[0]
        if len(found) > 1:
            scores, ids = (tf.concat(parts, axis=1) for parts in zip(*found, strict=True))
            # NaN ranks last, as in one table.
            keys = tf.where(scores > NOTHING, scores, NOTHING)
            scores, ids = highest(scores, ids, k, keys)
        return self.form.capped(scores), ids

    def each_replica(self, function: Callable[[], Any]) -> None:
        self.source.shards()[0].each_replica(function)

    @property
    def _is_plain(self) -> bool:
        return self.form.cap is None and self.form.rank_by == "logit"

    def _of_scores(self, function: Elementwise) -> Elementwise:
        """Returns a function of logits that applies `function` to their scores."""
        return lambda logits: function(self.form.scores(logits))


class ClassMatrix(RowScorer):
    """A `RowScorer` of rows in one variable, with the logits `o_c = <w_c, h> + b_c`.

    Args:
        embeddings: Keras variable `[num_classes, dim]`, one row per class. It belongs to the
            output layer, or to the embedding layer whose table it shares. Rows in bfloat16 on a
            GPU raise a ValueError.
        bias: Keras variable `[num_classes]`, or None.
        owner: Name of the layer, for messages.
        is_packed: See `Table`.
    """

    def __init__(
        self,
        embeddings: keras.Variable,
        bias: keras.Variable | None,
        owner: str,
        is_packed: bool = False,
    ) -> None:
        biases = None if bias is None else [bias]
        tables = tables_of([embeddings], biases, owner, is_packed=is_packed)
        super().__init__(RowSource(tables))


def _total(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    return parts[0] if len(parts) == 1 else tf.add_n(list(parts))


def _log_sum(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    return parts[0] if len(parts) == 1 else tf.reduce_logsumexp(tf.stack(parts), axis=0)
