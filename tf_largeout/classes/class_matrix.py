"""`RowScorer`: scores classes by inner products with their rows, from any `RowSource`."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.classes.best_scores import NOTHING, highest
from tf_largeout.classes.blockwise import BlockFunction
from tf_largeout.classes.class_scorer import ClassScorer, ClassStatistics
from tf_largeout.classes.class_sums import DenseRows
from tf_largeout.classes.logit_form import LogitForm
from tf_largeout.classes.row_sources import (
    OwnPass,
    Products,
    RowSource,
    RowTable,
    Table,
    tables_of,
)
from tf_largeout.types import Elementwise
from tf_largeout.variables.row_shard import on_each


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

    Args:
        source: The rows.
        form: The form of the scores; by default the logits.
    """

    def __init__(self, source: RowSource, form: LogitForm | None = None) -> None:
        super().__init__(source.num_classes, source.dim, source.has_bias, source.owner, form)
        self.source, self.is_rounded = source, source.is_rounded

    def shards(self) -> list[Table]:
        return self.source.shards()

    def variables(self) -> Products:
        """Returns the `tf.Variable`s of embeddings in one table, and of their bias or None.

        They are those of the current replica.

        Raises:
            ValueError: If they are neither float32 nor rows in bfloat16, or there are several
                tables.
        """
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
        passes: Sequence[OwnPass],
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

        def of_own_labels(one: OwnPass) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            return one.statistics(features, one.shard.to_local(labels), compute_dtype)

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
        self, passes: Sequence[OwnPass], features: tf.Tensor, labels: tf.Tensor
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
                lambda one: one.label_logits(features, one.shard.to_local(ids), compute_dtype),
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
            output layer, or to the embedding layer whose table it shares.
        bias: Keras variable `[num_classes]`, or None.
        owner: Name of the layer, for messages.
        is_packed: See `Table`.

    Raises:
        ValueError: If rows in bfloat16 are on a GPU.
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
