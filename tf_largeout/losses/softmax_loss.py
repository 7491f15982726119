"""`SoftmaxLoss`: the exact softmax loss."""

import keras
import tensorflow as tf

from tf_largeout.arguments import one_of
from tf_largeout.losses.cross_entropy import CrossEntropy
from tf_largeout.losses.tagged_loss import COMPUTE_DTYPES, TaggedLoss
from tf_largeout.steps.step import Step
from tf_largeout.types import Config, DTypeLike, TensorLike


@keras.saving.register_keras_serializable(package="tf_largeout")
class SoftmaxLoss(TaggedLoss):
    """Exact softmax cross entropy over all classes.

    `-mean_y(o_y) + log(sum_c exp(o_c))` for the labels `y` of an example. The loss works in
    blocks of classes: it never stores a `[batch, num_classes]` matrix, and the backward pass
    computes the probabilities again. Its time and the size of the gradient of the class
    embeddings are O(num_classes). Use it for comparisons, or for training if a pass over all
    classes per step is fast enough.

    Args:
        reduction: As in `keras.losses.Loss`.
        name: Name of the loss.
        dtype: Dtype of the returned loss, as in `keras.losses.Loss`.
        compute_dtype: "float32" or "bfloat16". With "bfloat16", features, class embeddings and,
            in the gradient, probabilities are rounded to bfloat16 before they are multiplied.
            Sums, biases, variables and gradients stay float32. The relative error of a product
            is at most about 2^-8. Processors with AMX multiply bfloat16 numbers several times
            as fast as float32 numbers. On other processors, the rounding is the same, but the
            products take longer than in float32. In training, metrics also use the rounded
            logits. `evaluate` always uses float32. GPUs do not support "bfloat16".
        ignore_class: As in `TaggedLoss`.
        label_smoothing: The share e of the target that is spread uniformly over all classes, in
            [0, 1). See `CrossEntropy`.
        log_partition_penalty: Factor, at least 0, of the added term `(log Z)^2`, where Z is the
            sum of `exp(logit)` over all classes. See `CrossEntropy`.
        class_weights: One weight per class, `[num_classes]`. None, the default, is 1 for all.
            The weight of a label multiplies its whole term, including its smoothed part. The
            loss is `sum_y w_y t_y (log Z - (1 - e) o_y - e mean_c o_c)`, where y runs over the
            labels of an example, and `t_y = 1 / #labels`. Weights of classes that are not
            labels have no effect. (In PyTorch they do: `mean_c` is weighted there.) See
            `CrossEntropy`.

    Raises:
        ValueError: If `compute_dtype` is another string, or another argument is out of range.
        tf.errors.InvalidArgumentError: In training, if `compute_dtype` is "bfloat16" on a GPU.
    """

    takes_soft_targets = True

    def __init__(
        self,
        reduction: str | None = "sum_over_batch_size",
        name: str | None = "softmax_loss",
        dtype: DTypeLike | None = None,
        compute_dtype: str = "float32",
        ignore_class: int | None = None,
        label_smoothing: float = 0.0,
        log_partition_penalty: float = 0.0,
        class_weights: TensorLike | None = None,
    ) -> None:
        super().__init__(reduction, name, dtype, ignore_class)
        self.cross_entropy = CrossEntropy(label_smoothing, log_partition_penalty, class_weights)
        self.compute_dtype = one_of("compute_dtype", compute_dtype, COMPUTE_DTYPES)

    def of_step(self, step: Step) -> tf.Tensor:
        dtype = self.compute_dtype if step.training else "float32"
        return self.cross_entropy.exact(step, dtype)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            **self.cross_entropy.get_config(),
            "compute_dtype": self.compute_dtype,
        }
