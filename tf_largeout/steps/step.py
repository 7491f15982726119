"""`Step`: one call of an output layer on a batch with labels, as a value.

A loss is a function of a step. Output layers make steps, and nothing that receives a step goes
back to the layer.
"""

import dataclasses
import functools
from collections.abc import Hashable
from typing import Any, ClassVar, Protocol

import tensorflow as tf

from tf_largeout import checks
from tf_largeout.classes.best_scores import NOTHING, are_among, search_without
from tf_largeout.classes.class_matrix import RowScorer
from tf_largeout.classes.class_scorer import ClassScorer, ClassStatistics
from tf_largeout.keras_internals import NO_TRACE
from tf_largeout.sampled_values import DRAWS, Sample
from tf_largeout.steps.candidates import Candidates, score_candidates
from tf_largeout.steps.labels import Labels, first_occurrences


class StepLoss(Protocol):
    """What a step needs to know about the loss that is called on it."""

    ranking: str
    ignore_class: int | None
    takes_soft_targets: bool
    takes_numeric_targets: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """What losses and metrics are functions of: features, labels and classes of `B` examples.

    The losses and metrics of a step share what it computes.

    Attributes:
        layer_name: Name of the output layer, for messages.
        classes: The `ClassScorer` of the layer, which scores the classes by their logits.
        features: Float `[B, dim]`, finite: the vectors that are multiplied by the class rows.
        labels: The `Labels` of the examples.
        training: Whether the step trains; otherwise losses are exact. None, if it is not known,
            counts as False.
        ranking: How the layer ranks classes: "logit", "absolute" or "taylor".
        loss: The loss that was called on the output; None before the call.
        shared: Results that all steps of one call of the layer share, by a key.
        given_by: The layers that make such steps, for messages.
        losses_to_take: The losses that these layers support, for messages.
    """

    given_by: ClassVar[str] = "`LargeOutput`, `FactoredOutput` or `HierarchicalOutput`"
    losses_to_take: ClassVar[str] = "`SoftmaxLoss`, or a loss that is made for that layer"

    layer_name: str
    classes: ClassScorer
    features: tf.Tensor
    labels: Labels
    training: bool | None = None
    ranking: str = "logit"
    loss: StepLoss | None = None
    shared: dict[Hashable, Any] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return self.classes.num_classes

    @functools.cached_property
    def distinct_labels(self) -> tf.Tensor:
        """Bool `[B, L]`, True where a label occurs in its example for the first time.

        Padding is False.
        """
        return first_occurrences(self.labels.ids)

    def ranking_by(self, absolute: bool | None) -> str:
        """Returns the ranking that an argument `absolute` selects; None for the layer's."""
        return self.ranking if absolute is None else ("absolute" if absolute else "logit")

    def mean_logits(self, ranking: str = "logit") -> tf.Tensor:
        """Returns the mean of the logits of all classes, float32 `[B]`.

        Args:
            ranking: As in `statistics`.
        """
        key = "mean_logits", ranking, id(self.features)
        if key not in self.shared:
            scorer = self.classes.ranked_by(ranking)
            self.shared[key] = scorer.mean_logits(self.features, bool(self.training))
        return self.shared[key]

    def statistics(
        self, compute_dtype: str = "float32", ranking: str = "logit"
    ) -> ClassStatistics:
        """Returns the exact `ClassStatistics`, by one pass over the classes.

        Args:
            compute_dtype: "float32" or "bfloat16"; each takes its own pass over the classes.
            ranking: "logit" for statistics of the logits, "absolute" of `|logit|`, "taylor" of
                `|1 + logit|`.
        """
        key = "statistics", ranking, compute_dtype, id(self.labels)
        if key not in self.shared:
            self.shared[key] = self._statistics(compute_dtype, ranking)
        return self.shared[key]

    def _statistics(self, compute_dtype: str, ranking: str) -> ClassStatistics:
        """Returns the statistics; the ranks are those among classes that are not excluded."""
        scorer, labels = self.classes.ranked_by(ranking), self.labels
        excluded = labels.excluded
        found = scorer.statistics(self.features, labels.ids, compute_dtype, bool(self.training))
        if excluded is None or self.training:
            return found

        def ranks() -> tf.Tensor:
            among_all = found.ranks  # outside of the branches, which both use it

            def among_the_rest() -> tf.Tensor:
                columns = tf.maximum(labels.ids, excluded)
                scores = scorer.ranked_scores(self.features, columns)
                return ranks_without(among_all, scores, labels, self.num_classes)

            has_any = tf.reduce_any(excluded >= 0)
            return tf.cond(has_any, among_the_rest, lambda: among_all)

        return ClassStatistics(found.log_partition, found.true_logits, ranks)

    def known_statistics(self, ranking: str = "logit") -> ClassStatistics | None:
        """Returns `statistics`, or None if a training step has not computed them.

        In training, the loss computes them, in its `compute_dtype`.

        Args:
            ranking: As in `statistics`.
        """
        if not self.training:
            return self.statistics(ranking=ranking)
        self.classes.ranked_by(ranking)  # raises an error if the classes do not support it
        for dtype in ("float32", "bfloat16"):
            found = self.shared.get(("statistics", ranking, dtype, id(self.labels)))
            if found is not None:
                return found
        return None

    def known_cross_entropies(self, absolute: bool | None = None) -> tf.Tensor | None:
        """Returns the mean of `-log p(label)` over the labels of each example, float32 `[B]`.

        Repeated labels of an example count once. The result is None in a training step in which
        the probabilities are not computed.

        Args:
            absolute: True if p is the softmax of `|logit|`, False if p is the softmax of the
                logits. None uses the softmax of the loss of this step. If there is no loss, it
                uses that of the layer's ranking.
        """
        ranking = self.ranking_by(absolute)
        if absolute is None and self.loss is not None:
            ranking = self.loss.ranking
        known = self.known_statistics("absolute" if ranking == "absolute" else "logit")
        if known is None:
            return None
        return known.log_partition - mean_over(self.distinct_labels, known.true_logits)

    def label_ranks(self, absolute: bool | None = None) -> tf.Tensor | None:
        """Returns ranks of the labels, int64 `[B, L]`, without O(num_classes) work in training.

        The ranks are exact outside training, and in training if the loss has made a pass over
        all classes. Otherwise the result is from `estimated_ranks`.

        Args:
            absolute: Whether to rank by `|logit|`, or by the logit; None for the layer's
                ranking.
        """
        ranking = self.ranking_by(absolute)
        known = self.known_statistics(ranking)
        return self.estimated_ranks(ranking) if known is None else known.ranks

    def estimated_ranks(self, ranking: str = "logit") -> tf.Tensor | None:
        """Returns ranks that this training step can estimate, int64 `[B, L]`, or None."""
        return None

    def best_classes(self, k: int, absolute: bool | None = None) -> tf.Tensor | None:
        """Returns the `k` best classes that are not excluded, int64 `[B, k]`; None in training.

        They are best first, padded with -1 if fewer classes are left. This takes a separate
        pass over the classes. All metrics of a step share this pass if the metric with the
        largest `k` comes first.

        Args:
            k: At least 1.
            absolute: As in `label_ranks`.
        """
        if self.training:
            return None
        ranking, excluded = self.ranking_by(absolute), self.labels.excluded
        key = "best", ranking, id(self.labels)
        if key not in self.shared or self.shared[key][0] < k:
            features = tf.cast(self.features, tf.float32)
            search = functools.partial(self.classes.ranked_by(ranking).top_k, features)
            if excluded is not None:
                excluded = _without_padding(excluded)
            _, ids = search_without(search, self.num_classes, excluded, k)
            self.shared[key] = k, ids
        return self.shared[key][1][:, :k]


@dataclasses.dataclass(frozen=True, eq=False)
class SampledStep(Step):
    """A step of a `LargeOutput`, which has a sample of classes if a sampled loss trains it.

    Attributes:
        sample: What the sampler drew; None without a sampler, and outside training.
        sampler_name: Name of the sampler, for messages; None if the layer has no sampler.
        counts_are: The kind of the expected counts, see `Sampler.counts_are`.
    """

    given_by: ClassVar[str] = "`LargeOutput`"
    losses_to_take: ClassVar[str] = "`SampledSoftmaxLoss`, with a sampler, or `SoftmaxLoss`"

    classes: RowScorer
    sample: Sample | None = None
    sampler_name: str | None = None
    counts_are: str = DRAWS

    def candidates(
        self,
        remove_accidental_hits: bool = True,
        explicit: tf.Tensor | None = None,
        compute_dtype: str = "float32",
    ) -> Candidates:
        """Scores the labels and the sampled classes.

        Args:
            remove_accidental_hits: Whether a drawn class that is a label of the example has no
                effect on that example.
            explicit: int64 `[n]`, distinct classes to score for every example in addition, or
                None. If such a class is also drawn, the draw has no effect.
            compute_dtype: "float32" or "bfloat16", see `score_candidates`.

        The step must have a sample.
        """
        scored = score_candidates(
            self.classes,
            self.features,
            self.labels.ids,
            self.sample,  # type: ignore[arg-type]  # not None
            remove_accidental_hits,
            explicit,
            self.counts_are,
            compute_dtype,
        )._replace(label_weights=self.labels.weights)
        self.shared["candidates"] = scored
        return scored

    def estimated_ranks(self, ranking: str = "logit") -> tf.Tensor | None:
        """Returns ranks among the classes that the loss drew.

        The exact ranks are usually far higher. The result is None if the loss drew no classes.

        Raises:
            tf.errors.InvalidArgumentError: If the loss was given other labels.
        """
        candidates: Candidates | None = self.shared.get("candidates")
        if candidates is None:
            return None
        ranks = candidates.ranks(ranking == "absolute")
        if self.labels.ids is candidates.labels:
            return ranks
        message = f"Loss and metric were given different labels for one output {NO_TRACE}"
        check = tf.debugging.assert_equal(self.labels.ids, candidates.labels, message)
        return checks.passed([check], ranks)


def ranks_without(
    ranks: tf.Tensor, scores: tf.Tensor, labels: Labels, num_classes: int
) -> tf.Tensor:
    """Returns the ranks of labels among the classes that are not excluded.

    It takes O(L log L) time per example.

    Args:
        ranks: int64 `[B, L]`, the ranks of the labels among all classes; `num_classes` at
            padding and where the score is NaN or -inf.
        scores: float32 `[B, L]`, which rank the labels and the excluded classes.
        labels: The labels and the excluded classes, which may repeat.
        num_classes: The number of all classes.

    Returns:
        int64 `[B, L]`; `num_classes` also for labels that are excluded.
    """
    # The best come first, and of equal scores the lower id, as in `ranks`.
    by_id = tf.argsort(tf.maximum(labels.ids, labels.excluded), axis=1)
    comparable = tf.where(scores > NOTHING, scores, NOTHING)
    by_score = tf.argsort(
        tf.gather(comparable, by_id, batch_dims=1), axis=1, direction="DESCENDING", stable=True
    )
    order = tf.gather(by_id, by_score, batch_dims=1)
    is_new = tf.cast(first_occurrences(labels.excluded), tf.int64)
    ones = tf.gather(is_new, order, batch_dims=1)
    above = tf.cumsum(ones, axis=1, exclusive=True)
    above = tf.gather(above, tf.argsort(order, axis=1), batch_dims=1)
    unranked = tf.constant(num_classes, tf.int64)
    has_rank = (ranks < unranked) & ~are_among(labels.ids, labels.excluded)
    return tf.where(has_rank, ranks - above, unranked)


def mean_over(counts: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Returns the mean of `values` over the last axis where `counts` is true; 0 if none is."""
    total = tf.reduce_sum(tf.where(counts, values, 0), axis=-1)
    number = tf.reduce_sum(tf.cast(counts, values.dtype), axis=-1)
    return tf.math.divide_no_nan(total, number)


def _without_padding(ids: tf.Tensor) -> tf.Tensor:
    """Drops the columns of `ids`, `[B, n]`, that have only padding once padding comes last."""
    width = tf.reduce_max(tf.reduce_sum(tf.cast(ids >= 0, tf.int32), axis=1))
    return tf.sort(ids, axis=1, direction="DESCENDING")[:, : tf.maximum(width, 0)]
