"""Exact passes over all classes that never store `[batch, num_classes]` logits.

The logits of N classes are `o_c = <w_c, h> + b_c`. They are computed in small tiles and
consumed in registers. The embeddings (float32 `[N, dim]`) and the bias (float32 `[N]`) are
resource variables or their handles, and are read in place without a copy. Results are
bit-identical for any number of threads. Features must be float32; cast other types first.
"""

from typing import NamedTuple

import tensorflow as tf

from tf_largeout.ops.devices import handle_of, optional_handle
from tf_largeout.ops.library import OPS, gen_ops
from tf_largeout.types import VariableOrHandle


def class_statistics(
    features: tf.Tensor,
    embeddings_handle: VariableOrHandle,
    bias_handle: VariableOrHandle | None,
    labels: tf.Tensor,
    true_logits: tf.Tensor | None = None,
    first_class: int | tf.Tensor = 0,
    compute_dtype: str = "float32",
    unit_length: bool = False,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Computes the log partition function and the exact ranks of the labels in one pass.

    `log_partition` and `true_logits` have first-order gradients with respect to the features
    and the variables; those of the variables are dense. If `true_logits` are passed, as for a
    row shard of a larger matrix whose first row is `first_class`, their gradient flows to them
    only. A `GradientTape` records the variables only if they are passed themselves, not as
    handles. A `compute_dtype` of "bfloat16" is faster only on CPUs with AMX.

    Returns:
        `(log_partition, true_logits, ranks)`: float32 `[batch]`, float32 and int64
        `[batch, num_labels]`.
    """
    return gen_ops.largeout_class_statistics(
        features,
        handle_of(embeddings_handle, watch=True),
        optional_handle(bias_handle, watch=True),
        labels,
        [] if true_logits is None else [true_logits],
        tf.cast(first_class, tf.int64),
        compute_type=compute_dtype,
        unit_length=unit_length,
    )


def label_logits(
    features: tf.Tensor,
    embeddings_handle: VariableOrHandle,
    bias_handle: VariableOrHandle | None,
    labels: tf.Tensor,
    compute_dtype: str = "float32",
    unit_length: bool = False,
) -> tf.Tensor:
    """Computes the logits of the labels only, without a pass over the classes.

    The arguments are those of `class_statistics`. The result, float32 `[batch, num_labels]`,
    and its first-order gradients are bit-identical to its `true_logits`.
    """
    return gen_ops.largeout_label_logits(
        features,
        handle_of(embeddings_handle, watch=True),
        optional_handle(bias_handle, watch=True),
        labels,
        compute_type=compute_dtype,
        unit_length=unit_length,
    )


READS_PACKED_ROWS = OPS == "native"  # whether `class_top_k` uses `packed`


class PackedClasses(NamedTuple):
    """Class rows quantized to 8 bits per number, from `pack_classes` for `class_top_k`.

    Attributes:
        codes: uint8 `[m]`, one byte per number of the embeddings.
        scales: float32 `[n]`, five per class: the parameters of the quantization and a bound of
            its error in the logits.
    """

    codes: tf.Tensor
    scales: tf.Tensor


def pack_classes(
    embeddings_handle: VariableOrHandle, bias_handle: VariableOrHandle | None
) -> PackedClasses:
    """Quantizes class rows on the CPU, in about the time of two `class_top_k` for a query."""
    handles = handle_of(embeddings_handle), optional_handle(bias_handle)
    return PackedClasses(*gen_ops.largeout_pack_classes(*handles))


def class_top_k(
    features: tf.Tensor,
    embeddings_handle: VariableOrHandle,
    bias_handle: VariableOrHandle | None,
    k: int | tf.Tensor,
    packed: PackedClasses | None = None,
    unit_length: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the k classes with the highest logits, exactly. Not differentiable.

    With `packed`, from `pack_classes` of the current values, a scan on a CPU reads a quarter of
    the bytes, and the result is bit-identical. With packed old values, it may miss classes.
    Without the op library, `packed` is not read.

    Returns:
        `(scores, ids)`: float32 and int64 `[batch, k]`, best first; in a tie the lower id comes
        first. Classes whose logit is NaN or -inf because of their row or bias come last.
    """
    return gen_ops.largeout_class_top_k(
        features,
        handle_of(embeddings_handle),
        optional_handle(bias_handle),
        [] if packed is None else [packed.codes],
        [] if packed is None else [packed.scales],
        tf.cast(k, tf.int64),
        unit_length=unit_length,
    )


def packed_top_k(
    features: tf.Tensor, packed: PackedClasses, num_classes: int, k: int | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the k classes with the highest logits of their 8-bit rows. Runs on the CPU.

    Results and errors are those of `class_top_k`. Classes whose row or bias was not finite come
    last, with the score -inf.
    """
    with tf.device("CPU:0"):
        k = tf.cast(k, tf.int64)
        return gen_ops.largeout_packed_top_k(features, *packed, k, num_classes=num_classes)


@tf.RegisterGradient("LargeoutClassStatistics")
def _statistics_gradient(
    op: tf.Operation, d_log_partition: tf.Tensor, d_true_logits: tf.Tensor, d_ranks: tf.Tensor
) -> list[tf.Tensor | None]:
    d_given = [d_true_logits] * op.get_attr("num_given")
    d_own = d_true_logits if not d_given else d_true_logits[:, :0]
    return [*_gradient(op, op.outputs[0], d_log_partition, d_own), None, *d_given, None]


@tf.RegisterGradient("LargeoutLabelLogits")
def _label_logits_gradient(
    op: tf.Operation, d_true_logits: tf.Tensor
) -> list[tf.Tensor | None]:
    zeros = tf.zeros(tf.shape(op.inputs[0])[:1])  # no gradient of the log partition function
    return [*_gradient(op, zeros, zeros, d_true_logits), None]


def _gradient(
    op: tf.Operation,
    log_partition: tf.Tensor,
    d_log_partition: tf.Tensor,
    d_true_logits: tf.Tensor,
) -> list[tf.Tensor]:
    """Returns the gradients of the features and the variables."""
    if op.get_attr("unit_length"):
        raise ValueError(
            "Passes over the classes have no gradient with unit_length=True. Pass "
            "unit_length=False and scaled rows."
        )
    features, embeddings, *bias = op.inputs[: 2 + op.get_attr("num_biases")]
    labels = op.inputs[2 + len(bias)]
    if d_true_logits.shape[1] == 0:  # the labels have logits from elsewhere
        labels = labels[:, :0]
    d_features, d_embeddings, d_bias = gen_ops.largeout_class_softmax_gradient(
        features,
        embeddings,
        bias,
        log_partition,
        d_log_partition,
        labels,
        d_true_logits,
        compute_type=op.get_attr("compute_type"),
    )
    return [d_features, d_embeddings, *d_bias]


tf.no_gradient("LargeoutClassTopK")
tf.no_gradient("LargeoutPackClasses")
tf.no_gradient("LargeoutPackedTopK")
