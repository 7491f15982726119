"""The tag of `LargeOutput`: logits of the classes that a sampled loss needs."""

import functools
from typing import Any

import tensorflow as tf

from tf_largeout import checks
from tf_largeout.keras_internals import NO_TRACE
from tf_largeout.sampled_values import HeadAndTail, SampledValues
from tf_largeout.tags import hardness
from tf_largeout.tags.candidates import Candidates, score_candidates
from tf_largeout.tags.compile_warnings import (
    require_row_sparse_optimizer,
    warn_of_dense_optimizer,
)
from tf_largeout.tags.output_tag import OutputTag
from tf_largeout.tags.selected_rows import SelectedRows


class LazyLogits(OutputTag):
    """Logits that are computed only for the classes that losses and metrics need.

    Args:
        layer: The `LargeOutput` that computed the logits.
        features: Its input, `[..., dim]`.
        training: Whether the step trains.
    """

    given_by = "`LargeOutput`"
    losses_to_take = "`SampledSoftmaxLoss`, with a sampler, or `SoftmaxLoss`"

    def __init__(self, layer: Any, features: tf.Tensor, training: bool | None) -> None:
        super().__init__(layer, features, training)
        if layer.class_matrix.uncapped.is_rounded:
            require_row_sparse_optimizer(layer)
        self._candidates: Candidates | None = None
        self._whole: tuple[LazyLogits, tf.Tensor, SelectedRows] | None = None

    @functools.cached_property
    def flat_features(self) -> tf.Tensor:
        """The layer's `queries` of the `checked_features`, `[B, dim]`."""
        return self.layer.queries(self.checked_features)

    def draw_candidates(
        self,
        labels: tf.Tensor,
        remove_accidental_hits: bool,
        asked_by: str,
        explicit: tf.Tensor | None = None,
        compute_dtype: str = "float32",
    ) -> Candidates:
        """Draws classes with the layer's sampler, and scores them and the labels.

        Args:
            labels: int64 `[B, L]`, padded with -1.
            remove_accidental_hits: Whether a drawn class that is a label of the example has no
                effect on that example.
            asked_by: Name of the loss, for the error.
            explicit: int64 `[n]`, distinct classes to score for every example in addition, or
                None. If such a class is also drawn, the draw has no effect.
            compute_dtype: "float32" or "bfloat16", see `score_candidates`.

        Raises:
            ValueError: If the layer has no sampler, or its sampler needs sequences and the
                features are not sequences.
        """
        layer = self.layer
        if layer.sampler is None:
            raise ValueError(
                f"{asked_by} scores classes that a sampler draws, but layer '{layer.name}' has "
                "sampler=None. Give `LargeOutput` a sampler, e.g. "
                "sampler=tf_largeout.samplers.UniformSampler(1024), or use `SoftmaxLoss`. A "
                "model from `join_models` has no sampler: fine-tune it with `SoftmaxLoss`, or "
                "train the models before you join them."
            )
        warn_of_dense_optimizer(layer)
        self._candidates = score_candidates(
            layer.class_matrix,
            self.flat_features,
            labels,
            self._sample(labels),
            remove_accidental_hits,
            explicit,
            layer.sampler.counts_are,
            compute_dtype,
        )
        return self._candidates

    def estimated_ranks(self, labels: tf.Tensor, ranking: str = "logit") -> tf.Tensor | None:
        """Returns ranks among the classes that the loss drew.

        The exact ranks are usually far higher. The result is None if the loss drew no classes.

        Raises:
            tf.errors.InvalidArgumentError: If the loss was given other labels.
        """
        if self._candidates is None:
            return None
        ranks = self._candidates.ranks(ranking == "absolute")
        if labels is self._candidates.labels:
            return ranks
        message = f"Loss and metric were given different labels for one output {NO_TRACE}"
        check = tf.debugging.assert_equal(labels, self._candidates.labels, message)
        return checks.passed([check], ranks)

    def hardness(self, labels: tf.Tensor, num_examples: int) -> tf.Tensor:
        """Returns the mean `softmax_mass` of negatives that are drawn for this measurement.

        The draw changes the seed of the layer and counters of the sampler, but no search
        structure.

        Args:
            labels: int64 `[B, L]`, padded with -1.
            num_examples: Number of examples to draw for, spread evenly over those that have
                labels. If the examples of a batch share their classes, these examples do.

        Returns:
            float32 scalar, NaN if no example has labels.
        """
        layer, sampler = self.layer, self.layer.sampler
        previous = self._previous_labels(labels) if sampler.uses_previous else None
        rows = tf.where(tf.reduce_any(labels >= 0, axis=1))[:, 0]
        size = tf.shape(rows)[0]
        number = tf.minimum(size, num_examples)
        rows = tf.gather(rows, tf.range(number) * size // tf.maximum(number, 1))
        features = tf.cast(tf.gather(self.flat_features, rows), tf.float32)
        labels = tf.gather(labels, rows)
        if previous is not None:
            previous = tf.gather(previous, rows)
        sample = sampler.sample_outside_step(features, labels, layer, previous)
        candidates = score_candidates(layer.class_matrix, features, labels, sample)
        found = hardness.softmax_mass(
            candidates, features, layer.scorer(layer.ranking), layer.ranking == "absolute"
        )
        return tf.reduce_mean(found)

    def _part(
        self, labels: tf.Tensor, selected_labels: tf.Tensor, rows: SelectedRows
    ) -> OutputTag:
        tag: Any = super()._part(labels, selected_labels, rows)
        tag._whole = self, labels, rows
        return tag

    def _sample(self, labels: tf.Tensor) -> SampledValues | HeadAndTail:
        """Draws classes for the examples.

        A sampler that searches by features does so only for the selected examples. Other
        samplers draw for all examples, because some draws depend on the position of the example
        in the batch.
        """
        sampler = self.layer.sampler
        if self._whole is not None and (sampler.uses_previous or not sampler.searches):
            tag, all_labels, rows = self._whole
            return _of_examples(tag._sample(all_labels), rows)
        given = [self.flat_features, labels, self.layer]
        if sampler.uses_previous:
            given.append(self._previous_labels(labels))
        return sampler.sample(*given)

    def _previous_labels(self, labels: tf.Tensor) -> tf.Tensor:
        """Returns the first label of the previous position, int64 `[B]`; -1 if there is none.

        Raises:
            ValueError: If the features are not sequences.
        """
        if self.features.shape.rank < 3:
            raise ValueError(
                f"{type(self.layer.sampler).__name__} of layer '{self.layer.name}' draws by "
                "the previous label in a sequence, so features must be [batch, time, dim] and "
                f"labels [batch, time]. Received features of shape {self.features.shape}. Use "
                "a `UnigramSampler` for data without sequences."
            )
        first = tf.pad(labels, [[0, 0], [0, 1]], constant_values=-1)[:, 0]
        in_time = tf.reshape(first, tf.shape(self.features)[:-1])
        is_first = tf.range(tf.shape(in_time)[-1]) == 0
        none = tf.constant(-1, tf.int64)
        return tf.reshape(tf.where(is_first, none, tf.roll(in_time, 1, axis=-1)), [-1])


def _of_examples(sample: SampledValues | HeadAndTail, rows: SelectedRows) -> Any:
    """Returns the part of a sample that belongs to the selected examples."""
    if isinstance(sample, HeadAndTail):
        return HeadAndTail(*(_of_examples(part, rows) for part in sample))
    ids, true_count, count = sample
    if ids.shape.rank == 2:
        ids, count = tf.gather(ids, rows.places), tf.gather(count, rows.places)
    return SampledValues(ids, tf.gather(true_count, rows.places), count)
