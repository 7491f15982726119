"""The tag of `LargeOutput`: logits of the classes that a sampled loss asks for."""

from typing import Any

import tensorflow as tf

from tf_largeout.tags.candidates import Candidates, score_candidates
from tf_largeout.tags.output_tag import OutputTag


class LazyLogits(OutputTag):
    """Logits that are computed only for the classes somebody asks for.

    Args:
        layer: The `LargeOutput` that made the logits.
        features: Its input, `[..., dim]`.
        training: Whether the step trains.
    """

    given_by = "`LargeOutput`"
    losses_to_take = "`SampledSoftmaxLoss`, with a sampler, or `SoftmaxLoss`"

    def __init__(self, layer: Any, features: tf.Tensor, training: bool | None) -> None:
        super().__init__(layer, features, training)
        self._candidates: Candidates | None = None

    def draw_candidates(
        self,
        labels: tf.Tensor,
        remove_accidental_hits: bool,
        asked_by: str,
        explicit: tf.Tensor | None = None,
        compute_dtype: str = "float32",
    ) -> Candidates:
        """The labels and the classes that the layer's sampler draws, scored.

        Args:
            labels: int64 `[B, L]`, padded with -1.
            remove_accidental_hits: Whether a drawn class that is a label of the row has no
                effect on that row.
            asked_by: Name of the loss, for the error.
            explicit: int64 `[n]`, distinct classes that are scored for every row whatever is
                drawn; drawn again, they have no effect. Or None.
            compute_dtype: "float32" or "bfloat16", see `score_candidates`.

        Raises:
            ValueError: If the layer has no sampler, or one for sequences where there are none.
        """
        layer = self.layer
        if layer.sampler is None:
            raise ValueError(
                f"{asked_by} scores classes that a sampler draws, but layer '{layer.name}' has "
                "sampler=None. Give `LargeOutput` a sampler, e.g. "
                "sampler=tf_largeout.samplers.UniformSampler(1024), or use `SoftmaxLoss`."
            )
        features = self.flat_features
        given = [features, labels, layer]
        if layer.sampler.uses_previous:
            given.append(self._previous_labels(labels))
        sample = layer.sampler.sample(*given)
        self._candidates = score_candidates(
            self.class_matrix,
            features,
            labels,
            sample,
            remove_accidental_hits,
            explicit,
            layer.sampler.counts_are,
            compute_dtype,
        )
        return self._candidates

    def estimated_ranks(self, labels: tf.Tensor, absolute: bool = False) -> tf.Tensor | None:
        """Ranks among the classes that the sampled loss drew, as a rule far below the exact.

        None where no loss drew any.

        Raises:
            tf.errors.InvalidArgumentError: If the loss was given other labels.
        """
        if self._candidates is None:
            return None
        if labels is self._candidates.labels:
            return self._candidates.ranks(absolute)
        message = "Loss and metric were given different labels for one output"
        check = tf.debugging.assert_equal(labels, self._candidates.labels, message)
        with tf.control_dependencies([] if check is None else [check]):
            return tf.identity(self._candidates.ranks(absolute))

    def _previous_labels(self, labels: tf.Tensor) -> tf.Tensor:
        """The first label of the position before each row, int64 `[B]`; -1 where none is.

        Raises:
            ValueError: If the features are no sequences.
        """
        if self.features.shape.rank < 3:
            raise ValueError(
                f"{type(self.layer.sampler).__name__} of layer '{self.layer.name}' draws by "
                "the label before in a sequence, so features must be [batch, time, dim] and "
                f"labels [batch, time]. Received features of shape {self.features.shape}. Take "
                "a `UnigramSampler` where there are no sequences."
            )
        first = tf.pad(labels, [[0, 0], [0, 1]], constant_values=-1)[:, 0]
        in_time = tf.reshape(first, tf.shape(self.features)[:-1])
        is_first = tf.range(tf.shape(in_time)[-1]) == 0
        none = tf.constant(-1, tf.int64)
        return tf.reshape(tf.where(is_first, none, tf.roll(in_time, 1, axis=-1)), [-1])
