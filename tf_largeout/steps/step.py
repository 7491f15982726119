"""`Step`: one call of an output layer on a batch with labels, as a value.

A loss is a function of a step. Output layers make steps, and nothing that receives a step goes
back to the layer.
"""

import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import tensorflow as tf

from tf_largeout import checks
from tf_largeout.classes.best_scores import NOTHING, are_among, search_without
from tf_largeout.classes.class_scorer import ClassScorer, ClassStatistics, RowScorer
from tf_largeout.classes.row_sources import absolute_or_lowest as absolute_or_lowest
from tf_largeout.classes.row_sources import joined
from tf_largeout.keras_internals import NO_TRACE, running_step
from tf_largeout.ops import candidate_ops, devices, product_ops
from tf_largeout.sampled_values import DRAWS, NONE, HeadAndTail, Sample, SampledValues
from tf_largeout.steps.labels import Labels, first_occurrences


class ScoredSample(NamedTuple):
    """One sample, scored for `B` examples.

    Its parts are separate, so that a loss that needs only the logsumexp of the logits computes
    neither the sum of products and offsets nor the matrix of probabilities. `products`, float32
    `[B, n]`, are those of features and class embeddings; the lowest float at id -1, which is
    padding. `sampled_candidates` are int64 `[n]`, or `[B, n]` if each example has its own
    classes. The others are float32 of their shape; `biases` are 0 if the products contain them.
    """

    products: tf.Tensor
    biases: tf.Tensor
    expected_count: tf.Tensor
    sampled_candidates: tf.Tensor


class Candidates(NamedTuple):
    """Everything that a sampled loss needs to know about `B` examples.

    Raw logits and the log of the expected counts are separate, so that each loss combines them
    in its own way. The sampled classes of an example come from all samples, in this order:
    first its own classes, then those of a tail. If a class is also in an earlier sample, its
    later occurrence has no effect.

    Attributes:
        labels: int64 `[B, L]`, padded with -1.
        true_logits: float32 `[B, L]`, logits of the labels; 0 at padding.
        true_expected_count: float32 `[B, L]`, how often a label is expected in the sample.
        samples: The `ScoredSample`s: one, or a head and a tail. If the loss scores some classes
            for every example, these come first, with expected counts of 1.
        remove_accidental_hits: Whether a sampled class that is a label of the example has no
            effect on that example. A class of the tail that is also in the head never has an
            effect.
        num_classes: Number of classes to draw from.
        counts_are: The kind of the expected counts: "draws", "probabilities" or "none", see
            `Sampler.counts_are`.
        label_weights: float32 `[B, L]`, the soft targets of the labels, 0 at padding; None for
            labels without targets.
    """

    labels: tf.Tensor
    true_logits: tf.Tensor
    true_expected_count: tf.Tensor
    samples: tuple[ScoredSample, ...]
    remove_accidental_hits: bool
    num_classes: int
    counts_are: str = DRAWS
    label_weights: tf.Tensor | None = None

    @property
    def has_label(self) -> tf.Tensor:
        """Bool `[B, L]`, False at padding."""
        return self.labels >= 0

    def true_log_counts(self) -> tf.Tensor:
        """Returns float32 `[B, L]`, the logs of the expected counts of the labels."""
        return tf.math.log(self.true_expected_count)

    def logits(self) -> tf.Tensor:
        """Returns float32 `[B, n]`, uncorrected; the lowest float if a class has no effect."""
        return self._masked_logits(corrected=False)

    def log_counts(self) -> tf.Tensor:
        """Returns float32 `[B, n]`, the logs of the expected counts of the sampled classes."""
        counts = [
            tf.broadcast_to(tf.math.log(sample.expected_count), tf.shape(sample.products))
            for sample in self.samples
        ]
        return joined(counts, axis=-1)

    def corrected_logits(self) -> tf.Tensor:
        """Returns `logits() - log_counts()` `[B, n]`, in one pass."""
        return self._masked_logits(corrected=True)

    def log_partition(self) -> tf.Tensor:
        """Returns float32 `[B]`, logsumexp of `corrected_logits()`, without computing those."""
        parts = []
        for sample, *part in self._parts(corrected=True):
            parts.append(candidate_ops.candidate_log_partition(sample.products, *part))
        return parts[0] if len(parts) == 1 else tf.reduce_logsumexp(tf.stack(parts), axis=0)

    def sum_over_classes(self, function: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Returns an estimate of the sum of `function(logit)` over all classes, float32 `[B]`.

        It is the exact sum over the labels and over the classes that a search found, plus the
        sum of `function(o_s) / E[count_s]` over the other sampled classes s. The estimate is
        unbiased. A repeated label counts once. `function` is elementwise and differentiable. If
        the sampler searches and has no tail, a ValueError is raised: counts are unknown then.
        """
        of_labels = tf.where(first_occurrences(self.labels), function(self.true_logits), 0)
        return row_sums(of_labels) + self.sum_over_others(function)

    def sum_over_others(self, function: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        """Like `sum_over_classes`, without the labels of the example."""
        if self.counts_are == NONE:
            raise ValueError(
                "Label smoothing, soft targets and `SigmoidLoss` estimate a sum over all "
                "classes. The sampler of the layer searches for classes, whose expected counts "
                "are not known, so it does not allow this estimate. Use a static sampler, such "
                "as UniformSampler, or a search with a tail: "
                "InvertedFileSampler(num_sampled, num_hard=16)."
            )
        logits = self._replace(remove_accidental_hits=True).logits()
        has_effect = logits > logits.dtype.min
        values = function(tf.where(has_effect, logits, 0)) * tf.exp(-self.log_counts())
        return row_sums(tf.where(has_effect, values, 0))

    def ranks(self, absolute: bool = False) -> tf.Tensor:
        """Returns int64 `[B, L]`, the rank of each label among the candidates of its example.

        The rank at padding is at least the number of candidates. A sampled class that is a
        label counts as the label, not as another class. `absolute` ranks by `|logit|`.
        """
        true_logits = tf.abs(self.true_logits) if absolute else self.true_logits
        labels, ranks = self.labels, []
        candidates = self._replace(remove_accidental_hits=True)
        for sample, biases, no_effect, ids in candidates._parts(corrected=False):
            part = sample.products, biases, no_effect, ids
            if absolute:
                logits = absolute_or_lowest(candidate_ops.shifted_candidate_logits(*part))
                part = logits, tf.zeros_like(biases), no_effect, ids
            ranks.append(candidate_ops.candidate_ranks(*part, labels, true_logits))
            labels = tf.minimum(labels, 0)  # equal labels: the others count in one part only
        return tf.add_n(ranks)

    def _masked_logits(self, corrected: bool) -> tf.Tensor:
        parts = [
            candidate_ops.shifted_candidate_logits(sample.products, *part)
            for sample, *part in self._parts(corrected)
        ]
        return joined(parts, axis=-1)

    def _parts(
        self, corrected: bool
    ) -> list[tuple[ScoredSample, tf.Tensor, tf.Tensor, tf.Tensor]]:
        """Returns each sample, its offsets, the classes `[B, m]` without effect, and its ids.

        If `corrected`, the offsets contain the logs of the expected counts.
        """
        no_effect = self.labels if self.remove_accidental_hits else self.labels[:, :0]
        parts = []
        for sample in self.samples:
            offsets, ids = sample.biases, sample.sampled_candidates
            if corrected:
                offsets -= tf.math.log(sample.expected_count)
            parts.append((sample, offsets, no_effect, ids))
            if sample is not self.samples[-1]:
                ids = tf.broadcast_to(ids, tf.shape(sample.products))
                no_effect = tf.concat([no_effect, ids], axis=1)
        return parts


def score_candidates(
    class_matrix: ClassScorer,
    features: tf.Tensor,
    labels: tf.Tensor,
    sample: SampledValues | HeadAndTail,
    remove_accidental_hits: bool = True,
    explicit: tf.Tensor | None = None,
    counts_are: str = DRAWS,
    compute_dtype: str = "float32",
) -> Candidates:
    """Scores the labels, int64 `[B, L]`, and the sampled classes of each example, `[B, dim]`.

    One op reads all class rows that are needed. Its gradient is sparse, with one row per
    distinct class. Padding reads no class row. For the other arguments see
    `SampledStep.candidates` and `Candidates`. With the `compute_dtype` "bfloat16",
    `ops.rounded_product` multiplies features and shared classes.
    """
    parts = [*sample] if isinstance(sample, HeadAndTail) else [sample]
    if explicit is not None:
        ones = tf.ones(tf.shape(explicit))
        parts.insert(0, SampledValues(explicit, sample.true_expected_count, ones))
    own: list[tf.Tensor] = [labels]
    shared: list[tf.Tensor] = []
    for one in parts:
        is_own = one.sampled_candidates.shape.rank == 2
        (own if is_own else shared).append(one.sampled_candidates)
    # Without an op for one part: a GPU with stock operations needs the ids on the host.
    own_ids = own[0] if len(own) == 1 else tf.concat(own, axis=1)
    none = [tf.zeros([0], tf.int64)]
    shared_ids = shared[0] if len(shared) == 1 else tf.concat(shared or none, axis=0)
    own_logits, rows, biases = class_matrix.dots_and_rows(features, own_ids, shared_ids)
    if compute_dtype == "bfloat16":
        of_op = tf.cast(features, tf.float32), rows
        products = product_ops.rounded_product(*of_op, transpose_b=True)
    else:
        products = tf.matmul(features, tf.cast(rows, features.dtype), transpose_b=True)
        products = tf.cast(products, tf.float32)
    if class_matrix.form.cap is not None:
        products, biases = class_matrix.form.capped(products + biases), tf.zeros_like(biases)
    true_logits, *of_own = _split(own_logits, own)
    of_shared, biases_of = _split(products, shared), _split(biases, shared)
    scored = []
    for ids, _, expected_count in parts:
        if ids.shape.rank == 2:
            values = of_own.pop(0), tf.zeros(tf.shape(ids))
        else:
            values = of_shared.pop(0), biases_of.pop(0)
        scored.append(ScoredSample(*values, expected_count, ids))
    return Candidates(
        labels,
        tf.where(labels >= 0, true_logits, 0),
        sample.true_expected_count,
        tuple(scored),
        remove_accidental_hits,
        class_matrix.num_classes,
        counts_are,
    )


def _split(values: tf.Tensor, ids: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Splits the last dimension of `values` into the widths of `ids`."""
    if len(ids) < 2:
        return [values] * len(ids)
    widths = []
    for one in ids:
        widths.append(tf.shape(one)[-1])
    return tf.split(values, widths, axis=-1)


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
        """Bool `[B, L]`, True where a label occurs first in its example; False at padding."""
        return first_occurrences(self.labels.ids)

    def ranking_by(self, absolute: bool | None) -> str:
        """Returns the ranking that an argument `absolute` selects; None for the layer's."""
        return self.ranking if absolute is None else ("absolute" if absolute else "logit")

    def mean_logits(self, ranking: str = "logit") -> tf.Tensor:
        """Returns the mean of the logits of all classes, float32 `[B]`, see `statistics`."""
        key = "mean_logits", ranking, id(self.features)
        if key not in self.shared:
            scorer = self.classes.ranked_by(ranking)
            self.shared[key] = scorer.mean_logits(self.features, bool(self.training))
        return self.shared[key]

    def statistics(
        self, compute_dtype: str = "float32", ranking: str = "logit"
    ) -> ClassStatistics:
        """Returns the exact `ClassStatistics` for a `ranking`, by one pass over the classes.

        Each `compute_dtype`, "float32" or "bfloat16", takes its own pass.
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

            with devices.host_ids_scope():
                has_any = tf.reduce_any(excluded >= 0)
            return tf.cond(has_any, among_the_rest, lambda: among_all)

        return ClassStatistics(found.log_partition, found.true_logits, ranks)

    def known_statistics(self, ranking: str = "logit") -> ClassStatistics | None:
        """Returns `statistics`, or None if a training step has not computed them.

        In training, the loss computes them, in its `compute_dtype`.
        """
        if not self.training:
            return self.statistics(ranking=ranking)
        if ranking != "logit":
            self.classes.ranked_by(ranking)  # raises an error if it is not supported
        for dtype in ("float32", "bfloat16"):
            found = self.shared.get(("statistics", ranking, dtype, id(self.labels)))
            if found is not None:
                return found
        return None

    def known_cross_entropies(self, absolute: bool | None = None) -> tf.Tensor | None:
        """Returns the mean of `-log p(label)` over the labels of each example, float32 `[B]`.

        Repeated labels of an example count once. The result is None in a training step in which
        the probabilities are not computed. p is the softmax of `|logit|` if `absolute`, of the
        logits if not, and for None that of the loss of this step, or of the layer's ranking.
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
        all classes. Otherwise the result is from `estimated_ranks`. `absolute` selects the
        ranking by `|logit|` or by the logit; None is the layer's ranking.
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
        """Scores the labels and the sampled classes. The step must have a sample.

        `explicit`, int64 `[n]`, are distinct classes to score for every example in addition. If
        such a class is also drawn, the draw has no effect. The others are as in `SampledLoss`.
        """
        if self.sample is None:
            raise ValueError(
                f"The step of layer '{self.layer_name}' has no sampled classes. Give the layer "
                "a sampler, and make the step with training=True."
            )
        scored = score_candidates(
            self.classes,
            self.features,
            self.labels.ids,
            self.sample,
            remove_accidental_hits,
            explicit,
            self.counts_are,
            compute_dtype,
        )._replace(label_weights=self.labels.weights)
        self.shared["candidates"] = scored
        return scored

    def estimated_ranks(self, ranking: str = "logit") -> tf.Tensor | None:
        """Returns ranks among the classes that the loss drew; None if it drew no classes.

        The exact ranks are usually far higher. Other labels than those of the loss raise a
        `tf.errors.InvalidArgumentError`.
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
    """Returns the ranks of labels among the classes that are not excluded, int64 `[B, L]`.

    It takes O(L log L) time per example. `ranks` are those among all classes: `num_classes`
    at padding and where the score is NaN or -inf. `scores`, float32 `[B, L]`, rank the labels
    and the excluded classes, which may repeat. An excluded label gets `num_classes`.
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


def row_sums(values: tf.Tensor) -> tf.Tensor:
    """Returns `tf.reduce_sum(values, axis=-1)`, with a gradient that does not wait for a GPU.

    Without `keepdims`, TensorFlow computes a shape for the gradient in the memory of the GPU.
    """
    return tf.squeeze(tf.reduce_sum(values, axis=-1, keepdims=True), axis=-1)


def mean_over(counts: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Returns the mean of `values` over the last axis where `counts` is true; 0 if none is."""
    total = tf.reduce_sum(tf.where(counts, values, 0), axis=-1)
    number = tf.reduce_sum(tf.cast(counts, values.dtype), axis=-1)
    return tf.math.divide_no_nan(total, number)


def _without_padding(ids: tf.Tensor) -> tf.Tensor:
    """Drops the columns of `ids`, `[B, n]`, that have only padding once padding comes last.

    XLA compiles only sizes that it knows, so there it drops none.
    """
    if running_step().is_compiled:
        return ids
    width = tf.reduce_max(tf.reduce_sum(tf.cast(ids >= 0, tf.int32), axis=1))
    return tf.sort(ids, axis=1, direction="DESCENDING")[:, : tf.maximum(width, 0)]
