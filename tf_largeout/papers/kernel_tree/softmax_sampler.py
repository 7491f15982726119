"""Classes by the model's distribution, or a kernel of the logits: O(num_classes) per step."""

from typing import Any

import keras
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.arguments import one_of, real_number
from tf_largeout.keras_internals import running_step
from tf_largeout.ops.random_numbers import uniform_floats
from tf_largeout.sampled_values import LEAST_COUNT, SampledValues
from tf_largeout.samplers.sampler import ClassLayer, Sampler, named
from tf_largeout.types import Config

_NUMBERS_AT_ONCE = 2**23  # logits in memory; with their sums about 256 MiB


@named("softmax")
@keras.saving.register_keras_serializable(package="tf_largeout")
class SoftmaxSampler(Sampler):
    """Draws classes per example by a function of its logits, with exact counts.

    Draws with replacement from the classes that are not labels of the example, in proportion to

    | `distribution` | weight of class c |
    |---|---|
    | "softmax" | `exp(o_c)` |
    | "absolute_softmax" | `exp(|o_c|)` |
    | "quadratic" | `alpha o_c^2 + 1` |
    | "quartic" | `o_c^4 + 1` |

    of the current logits. Each step scores all classes, as the exact loss does, so this sampler
    is for comparisons. With "softmax", it is the only sampler with which the gradient of
    `SampledSoftmaxLoss` is unbiased. With "absolute_softmax", the same holds for
    `AbsoluteSoftmaxLoss` (Blanc & Rendle 2018, theorem 2.1, where labels are not drawn).
    "quadratic" and "quartic" are the kernels of their section 3, without a tree.

    A label is never drawn. Its reported count, which `SampledSoftmaxLoss` and
    `AbsoluteSoftmaxLoss` do not use, equals the count of another class with the same logit.

    The batch is processed in parts. Besides a copy of the class embeddings, a step needs about
    256 MiB, or 32 bytes per class if that is more.

    Args:
        num_sampled: Number of classes drawn per example.
        distribution: See above.
        alpha: The alpha of "quadratic"; 100 in the paper.
        seed: Int that determines the random draws; None for a random seed.

    Raises:
        ValueError: If `distribution` is unknown, or if `alpha` is not above 0.

    Example:
        head = LargeOutput(10_000, sampler=SoftmaxSampler(32, "quadratic"))
    """

    searches = True

    def __init__(
        self,
        num_sampled: int = 1024,
        distribution: str = "softmax",
        alpha: float = 100.0,
        seed: int | None = None,
    ) -> None:
        super().__init__(num_sampled, seed=seed)
        choices = ["softmax", "absolute_softmax", "quadratic", "quartic"]
        self.distribution = one_of("distribution", distribution, choices)
        self.alpha = real_number("alpha", alpha, least=0, allow_least=False)

    def draw(
        self, features: tf.Tensor | None, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues:
        if features is None:
            raise ValueError(
                "SoftmaxSampler draws by the logits of each example. Received: features=None. "
                "Pass the inputs of the layer, [batch, dim]."
            )
        batch = tf.shape(labels)[0]
        shape = [batch, self.num_sampled]
        uniform = uniform_floats(shape, layer.next_seed())
        if running_step().is_compiled:  # in one part, because XLA needs parts of one size
            logits = layer.class_matrix.logits(features)
            return SampledValues(*self._draw_rows(logits, labels, uniform))
        rows = max(1, _NUMBERS_AT_ONCE // self.num_classes)
        num_parts = tf.maximum((batch + rows - 1) // rows, 1)
        of_each = ((tf.int64, self.num_sampled), (tf.float32, labels.shape[1]))
        ids, true_counts, counts = (
            tf.TensorArray(dtype, num_parts, infer_shape=False, element_shape=[None, width])
            for dtype, width in (*of_each, (tf.float32, self.num_sampled))
        )

        def next_part(part: tf.Tensor, arrays: Any) -> tuple[tf.Tensor, Any]:
            of_part = slice(part * rows, tf.minimum((part + 1) * rows, batch))
            values = self._draw_rows(
                layer.class_matrix.logits(features[of_part]), labels[of_part], uniform[of_part]
            )
            both = zip(arrays, values, strict=True)
            return part + 1, tuple(array.write(part, value) for array, value in both)

        _, arrays = tf.while_loop(
            lambda part, _: part < num_parts,
            next_part,
            (tf.constant(0), (ids, true_counts, counts)),
            parallel_iterations=1,
        )
        return SampledValues(*(array.concat() for array in arrays))

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "distribution": self.distribution,
            "alpha": self.alpha,
        }

    def _draw_rows(
        self, logits: tf.Tensor, labels: tf.Tensor, uniform: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Draws for n examples: logits `[n, N]`, labels `[n, L]`, float64 `[n, m]`."""
        weights = self._weights(logits, labels)
        true_weights = tf.gather(weights, tf.maximum(labels, 0), batch_dims=1)
        weights = _with_labels(weights, labels, 0)
        cumulative = tf.cumsum(weights, axis=1)
        message = "The logits that SoftmaxSampler draws by must be finite"
        total = checks.finite(cumulative[:, -1:], message)
        # Below the total even if the product is rounded up, so that the drawn class has a
        # weight.
        targets = tf.minimum(uniform * total, total * (1 - 2.0**-53))
        ids = tf.searchsorted(cumulative, targets, side="right", out_type=tf.int64)
        ids = tf.minimum(ids, self.num_classes - 1)
        rate = tf.math.divide_no_nan(tf.cast(self.num_sampled, tf.float64), total)
        counts = _as_counts(rate * tf.gather(weights, ids, batch_dims=1))
        true_counts = _as_counts(rate * true_weights)
        is_any = total > 0  # whether some class is not a label
        return (
            tf.where(is_any, ids, -1),
            tf.where(is_any & (labels >= 0), true_counts, 1),
            tf.where(is_any, counts, 1),
        )

    def _weights(self, logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns float64 `[n, N]`, up to a factor per example."""
        if self.distribution in ("quadratic", "quartic"):
            square = tf.square(tf.cast(logits, tf.float64))
            is_quartic = self.distribution == "quartic"
            return 1 + (tf.square(square) if is_quartic else self.alpha * square)
        scores = tf.abs(logits) if self.distribution == "absolute_softmax" else logits
        others = _with_labels(scores, labels, scores.dtype.min)
        top = tf.reduce_max(others, axis=1, keepdims=True)
        return tf.exp(tf.cast(scores, tf.float64) - tf.cast(top, tf.float64))


def _with_labels(values: tf.Tensor, labels: tf.Tensor, value: float) -> tf.Tensor:
    """Sets the values `[n, N]` of the labels `[n, L]` of each example to `value`."""
    if running_step().is_compiled:  # XLA needs to know the number of labels
        classes = tf.range(tf.shape(values, tf.int64)[1])
        is_label = tf.reduce_any(labels[:, :, tf.newaxis] == classes, axis=1)
        return tf.where(is_label, tf.cast(value, values.dtype), values)
    places = tf.where(labels >= 0)
    at = tf.stack([places[:, 0], tf.gather_nd(labels, places)], axis=1)
    new = tf.fill(tf.shape(at)[:1], tf.cast(value, values.dtype))
    return tf.tensor_scatter_nd_update(values, at, new)


def _as_counts(counts: tf.Tensor) -> tf.Tensor:
    """Converts to float32, clipped to numbers whose logarithm is finite."""
    return tf.cast(tf.clip_by_value(counts, LEAST_COUNT, 1 / LEAST_COUNT), tf.float32)
