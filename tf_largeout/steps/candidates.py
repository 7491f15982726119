"""The classes that a sampled loss scores: the labels of each example and the sampled ones."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import tensorflow as tf

from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.classes.logit_form import absolute_or_lowest as absolute_or_lowest
from tf_largeout.ops import candidate_ops, product_ops
from tf_largeout.sampled_values import DRAWS, NONE, HeadAndTail, SampledValues
from tf_largeout.steps.labels import first_occurrences


class ScoredSample(NamedTuple):
    """One sample, scored for `B` examples.

    Its parts are separate, so that a loss that needs only the logsumexp of the logits computes
    neither the sum of products and offsets nor the matrix of probabilities.

    Attributes:
        products: float32 `[B, n]`, features times class embeddings; the lowest float at id -1,
            which is padding.
        biases: float32, in the shape of `sampled_candidates`; 0 if the products contain them.
        expected_count: float32, in the shape of `sampled_candidates`.
        sampled_candidates: int64 `[n]`, or `[B, n]` if each example has its own classes.
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
        return _joined(counts)

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
        unbiased. A repeated label counts once.

        Args:
            function: Elementwise and differentiable.

        Raises:
            ValueError: If the sampler searches and has no tail, because its expected counts are
                then unknown.
        """
        of_labels = tf.where(first_occurrences(self.labels), function(self.true_logits), 0)
        return tf.reduce_sum(of_labels, axis=1) + self.sum_over_others(function)

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
        return tf.reduce_sum(tf.where(has_effect, values, 0), axis=1)

    def ranks(self, absolute: bool = False) -> tf.Tensor:
        """Returns int64 `[B, L]`, the rank of each label among the candidates of its example.

        The rank at padding is at least the number of candidates. A sampled class that is a
        label counts as the label, not as another class.

        Args:
            absolute: Whether to rank by `|logit|`.
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
        return _joined(parts)

    def _parts(
        self, corrected: bool
    ) -> list[tuple[ScoredSample, tf.Tensor, tf.Tensor, tf.Tensor]]:
        """Returns each sample, its offsets, the classes `[B, m]` without effect, and its ids.

        Args:
            corrected: Whether the offsets contain the logs of the expected counts.
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
    """Scores the labels and the sampled classes of each example.

    One op reads all class rows that are needed. Its gradient is sparse, with one row per
    distinct class. Padding reads no class row.

    Args:
        class_matrix: The classes.
        features: `[B, dim]`.
        labels: int64 `[B, L]`, padded with -1.
        sample: What the sampler returned.
        remove_accidental_hits: See `Candidates`.
        explicit: int64 `[n]`, distinct classes to score for every example in addition; or None.
        counts_are: See `Candidates`.
        compute_dtype: "float32", or "bfloat16" to compute the products of features and shared
            classes by `ops.rounded_product`.
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
    own_logits, rows, biases = class_matrix.dots_and_rows(
        features,
        tf.concat(own, axis=1),
        tf.concat([*shared, tf.zeros([0], tf.int64)], axis=0),
    )
    products = _products(features, rows, compute_dtype)
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


def _products(features: tf.Tensor, rows: tf.Tensor, compute_dtype: str) -> tf.Tensor:
    """Returns float32 `[B, m]`, features times the rows of shared classes."""
    if compute_dtype == "bfloat16":
        return product_ops.rounded_product(
            tf.cast(features, tf.float32), rows, transpose_b=True
        )
    rows = tf.cast(rows, features.dtype)
    return tf.cast(tf.matmul(features, rows, transpose_b=True), tf.float32)


def _split(values: tf.Tensor, ids: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Splits the last dimension of `values` into the widths of `ids`."""
    if len(ids) < 2:
        return [values] * len(ids)
    widths = []
    for one in ids:
        widths.append(tf.shape(one)[-1])
    return tf.split(values, widths, axis=-1)


def _joined(parts: Sequence[tf.Tensor]) -> tf.Tensor:
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=-1)
