"""`FactoredMatrix`: classes whose rows are products of factors, which are never computed."""

import dataclasses
from typing import Any

import tensorflow as tf

from tf_largeout.classes.blockwise import BlockFunction
from tf_largeout.classes.class_scorer import ClassScorer, ClassStatistics, RowScorer
from tf_largeout.classes.row_sources import Products, RowSource, Table, new_rows
from tf_largeout.papers.factored.factored_output_ops import (
    FactoredState,
    current_blocks,
    factored_output_take_folds,
    factored_output_vectors,
)


class FactoredMatrix(ClassScorer):
    """Rows `W = V U + 1 omega'`, scored as `<v_c, U h> + <omega, h>` (Vincent et al. 2015).

    The rows of V score the features `U h`. The term of `omega` is the same for all classes.
    With a bias, a 1 is appended to h, and the last column of W contains the biases. `weights`
    are the Keras variables of a `FactoredState`.
    """

    def __init__(self, weights: FactoredState, has_bias: bool, owner: str) -> None:
        num_classes, width = weights.vectors.shape
        super().__init__(num_classes, width - int(has_bias), has_bias, owner)
        self._weights = weights
        table = _CurrentRows(
            first=0,
            num_rows=num_classes,
            dim=width,
            has_bias=False,
            owner=owner,
            embeddings=weights.vectors,
            bias=None,
            weights=weights,
        )
        self._table, self._vectors = table, RowScorer(RowSource([table]))

    @property
    def state(self) -> FactoredState:
        """The Keras variables of V, U, omega and the statistics of W."""
        return self._weights

    def product_rows(self) -> RowSource:
        """Like `ClassScorer.product_rows`: new variables, computed by this call."""
        return new_rows(self.values(), self.biases(), self._owner)

    def rows(self, ids: tf.Tensor) -> tf.Tensor:
        vectors = tf.gather(self._table.current(), ids)
        return self._mixed(vectors)[..., : self.dim]

    def values(self) -> tf.Tensor:
        return self._mixed(self._table.current())[:, : self.dim]

    def biases(self) -> tf.Tensor | None:
        """See `ClassScorer.biases`. Changes no variable."""
        if not self.has_bias:
            return None
        column = slice(self.dim, None)
        blocks = [self._mixed(rows, column)[:, 0] for rows in current_blocks(self._weights)]
        return tf.concat(blocks, axis=0)

    def logits(self, features: tf.Tensor) -> tf.Tensor:
        vectors = factored_output_vectors(self._weights)
        return self.form.scores(self.logits_by(features, vectors))

    def logits_by(self, features: tf.Tensor, vectors: tf.Tensor) -> tf.Tensor:
        """Computes logits of features by the rows of V, with TensorFlow operations only."""
        hidden, shift = self.hidden(features)
        logits = tf.tensordot(hidden, vectors, axes=[[-1], [1]])
        return tf.cast(logits + shift[..., tf.newaxis], features.dtype)

    def take_folds(self) -> None:
        """Brings all rows of V up to date. Steps do this only for the rows that they read."""
        self._table.current()

    def dots(self, features: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        hidden, shift = self.hidden(features)
        dots = self._vectors.dots(hidden, ids)
        logits = tf.where(ids >= 0, dots + shift[:, tf.newaxis], dots)
        return self.form.scores(logits, padded=True)

    def statistics(
        self,
        features: tf.Tensor,
        labels: tf.Tensor,
        compute_dtype: str = "float32",
        training: bool = False,
    ) -> ClassStatistics:
        if self.form.rank_by != "logit":
            return super().statistics(features, labels, compute_dtype)
        hidden, shift = self.hidden(features)
        found = self._vectors.statistics(hidden, labels, compute_dtype)
        true_logits = tf.where(labels >= 0, found.true_logits + shift[:, tf.newaxis], 0)
        return ClassStatistics(found.log_partition + shift, true_logits, found.ranks)

    def ranked_scores(
        self, features: tf.Tensor, ids: tf.Tensor, compute_dtype: str = "float32"
    ) -> tf.Tensor:
        if self.form.rank_by != "logit":
            return super().ranked_scores(features, ids)
        return self._vectors.ranked_scores(self.hidden(features)[0], ids)

    def top_k(self, features: tf.Tensor, k: int | tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        if self.form.rank_by != "logit":
            return super().top_k(features, k)
        hidden, shift = self.hidden(features)
        scores, ids = self._vectors.top_k(hidden, k)
        return scores + shift[:, tf.newaxis], ids

    def fold_logits(
        self, features: tf.Tensor, function: BlockFunction, state: Any, **options: Any
    ) -> Any:
        hidden, shift = self.hidden(features)

        def shifted(state: Any, logits: tf.Tensor, ids: tf.Tensor) -> Any:
            return function(state, self.form.scores(logits + shift[:, tf.newaxis]), ids)

        return self._vectors.fold_logits(hidden, shifted, state, **options)

    def hidden(self, features: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns `U h`, `[..., D]`, which the rows of V score, and `<omega, h>`, `[...]`.

        They are computed in float64 and returned in the dtype of V.
        """
        features = self._with_one(tf.cast(features, tf.float64))
        mixing, offset = self._weights.mixing.value, self._weights.offset.value
        hidden = tf.tensordot(features, mixing, axes=[[-1], [1]])
        shift = tf.reduce_sum(features * offset, axis=-1)
        return tuple(tf.cast(one, self._weights.vectors.dtype) for one in (hidden, shift))

    def _with_one(self, features: tf.Tensor) -> tf.Tensor:
        if not self.has_bias:
            return features
        return tf.concat([features, tf.ones_like(features[..., :1])], axis=-1)

    def _mixed(self, vectors: tf.Tensor, columns: slice = slice(None)) -> tf.Tensor:
        """Computes rows of W, or some of their columns, from rows of V."""
        mixing = tf.cast(self._weights.mixing.value[:, columns], vectors.dtype)
        offset = tf.cast(self._weights.offset.value[columns], vectors.dtype)
        return tf.tensordot(vectors, mixing, axes=1) + offset


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _CurrentRows(Table):
    """The rows of V, which it brings up to date before each read."""

    weights: FactoredState

    def variables(self) -> Products:
        found = super().variables()
        self.current()
        return found

    def current(self) -> tf.Variable:
        """Returns V, in any dtype, up to date."""
        factored_output_take_folds(self.weights)
        return self.weights.vectors.value
