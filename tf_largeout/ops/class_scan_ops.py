"""Exact passes over all classes that never hold `[batch, num_classes]`.

With `N` classes, the logits are `o_c = <w_c, h> + b_c`; they are made a small
tile at a time and used up in registers. The embeddings (float32 `[N, dim]`) and
the bias (float32 `[N]`) are given as resource variables or their handles and are read
in place, also where a dense read would copy them. Results are the same to the bit
on any number of threads. Features of other types than float32: cast them before.
"""

from typing import NamedTuple

import tensorflow as tf

from tf_largeout.ops.handles import handle_of, optional_handle
from tf_largeout.ops.library import gen_ops
from tf_largeout.types import VariableOrHandle


def class_statistics(
    features: tf.Tensor,
    embeddings_handle: VariableOrHandle,
    bias_handle: VariableOrHandle | None,
    labels: tf.Tensor,
    true_logits: tf.Tensor | None = None,
    first_class: int | tf.Tensor = 0,
    compute_dtype: str = "float32",
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Log partition function and exact ranks of the labels, in one pass.

    With `true_logits`, the embeddings may be a row shard of a larger matrix, whose row
    `first_class` is their first, and the labels any classes of that: the ranks of all
    shards add up to the rank in the whole, and the logsumexp of their `log_partition` is
    that of the whole.

    `log_partition` and `true_logits` are differentiable, once, with respect to
    the features and the variables: one `class_softmax_gradient`, whose gradients
    of the variables are dense. The gradient of given `true_logits` goes to these alone.
    A tape notices variables that are given as such, not by their handles alone.

    Args:
        features: float32 `[batch, dim]`.
        embeddings_handle: handle of a float32 variable `[N, dim]`.
        bias_handle: handle of a float32 variable `[N]`, or None.
        labels: int64 `[batch, num_labels]` in `[-1, N)`; -1 is padding. With
            `true_logits`, any ids of at least 0, or -1.
        true_logits: float32 `[batch, num_labels]`, the logits of the labels; or None, to
            compute them.
        first_class: integer of at least 0, the id of the first row of the embeddings;
            0 without `true_logits`.
        compute_dtype: "float32", or "bfloat16": features and embeddings, and in the gradient
            probabilities, are rounded to the nearest bfloat16 before they are multiplied.
            Sums, biases and results are float32. On a CPU with AMX that is several times as
            fast; others round alike and take longer than in float32. Not on a GPU.

    Returns:
        `(log_partition, true_logits, ranks)`:

        * `log_partition`: float32 `[batch]`, `log(sum_c exp(o_c))` over the classes of the
          embeddings.
        * `true_logits`: float32 `[batch, num_labels]`, 0 at padding; or those given.
        * `ranks`: int64 `[batch, num_labels]`, the number of classes of the embeddings,
          other than the label, that score higher, ties going to the lower id; N at padding
          and where the logit is NaN or -inf.

    Raises:
        tf.errors.InvalidArgumentError: If a shape or a label is none of these, or
            `first_class` is not 0 without `true_logits`, or `compute_dtype` is "bfloat16" on a
            GPU. There a label out of range has the logit NaN instead.
    """
    return gen_ops.largeout_class_statistics(
        features,
        handle_of(embeddings_handle, watch=True),
        optional_handle(bias_handle, watch=True),
        labels,
        [] if true_logits is None else [true_logits],
        tf.cast(first_class, tf.int64),
        compute_type=compute_dtype,
    )


def label_logits(
    features: tf.Tensor,
    embeddings_handle: VariableOrHandle,
    bias_handle: VariableOrHandle | None,
    labels: tf.Tensor,
    compute_dtype: str = "float32",
) -> tf.Tensor:
    """The `true_logits` of `class_statistics`, to the bit, without a pass over the classes.

    Differentiable, once, as those are.

    Args:
        features: float32 `[batch, dim]`.
        embeddings_handle: handle of a float32 variable `[N, dim]`.
        bias_handle: handle of a float32 variable `[N]`, or None.
        labels: int64 `[batch, num_labels]` in `[-1, N)`; -1 is padding.
        compute_dtype: As in `class_statistics`.

    Returns:
        float32 `[batch, num_labels]`, 0 at padding.

    Raises:
        tf.errors.InvalidArgumentError: As `class_statistics`.
    """
    return gen_ops.largeout_label_logits(
        features,
        handle_of(embeddings_handle, watch=True),
        optional_handle(bias_handle, watch=True),
        labels,
        compute_type=compute_dtype,
    )


class PackedClasses(NamedTuple):
    """Classes at 8 bits a number, as `pack_classes` makes them and `class_top_k` takes them.

    Attributes:
        codes: uint8 `[m]`, a byte for each number of the embeddings.
        scales: float32 `[n]`, five for each class: what the bytes stand for, and how far the
            logits can be from theirs.
    """

    codes: tf.Tensor
    scales: tf.Tensor


def pack_classes(
    embeddings_handle: VariableOrHandle, bias_handle: VariableOrHandle | None
) -> PackedClasses:
    """Packs classes for `class_top_k`. On the CPU; about the time of two scans for one row.

    Args:
        embeddings_handle: handle of a float32 variable `[N, dim]`.
        bias_handle: handle of a float32 variable `[N]`, or None.
    """
    return PackedClasses(
        *gen_ops.largeout_pack_classes(
            handle_of(embeddings_handle), optional_handle(bias_handle)
        )
    )


def class_top_k(
    features: tf.Tensor,
    embeddings_handle: VariableOrHandle,
    bias_handle: VariableOrHandle | None,
    k: int | tf.Tensor,
    packed: PackedClasses | None = None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """The k classes with the highest logits, exactly. Not differentiable.

    Args:
        features: float32 `[batch, dim]`, finite.
        embeddings_handle: handle of a float32 variable `[N, dim]`.
        bias_handle: handle of a float32 variable `[N]`, or None.
        k: integer in `[1, N]`.
        packed: `pack_classes` of the variables as they are now, or None. With it a scan on a
            CPU reads a quarter of the bytes: bounds of the logits tell the few classes that
            must be scored in float32. The result is the same to the bit, if nothing was changed
            since; otherwise classes may be missed. Without, batches of 128 rows and more are
            packed on the way.

    Returns:
        `(scores, ids)`:

        * `scores`: float32 `[batch, k]`, falling.
        * `ids`: int64 `[batch, k]`; of equal scores the lower id first, and logits
          that are NaN or -inf, by their class's row or bias, last.

    Raises:
        tf.errors.InvalidArgumentError: If features are not finite, or a logit found
            overflows. On a GPU its score is NaN and its id -1 instead, and `packed` must
            be None.
    """
    return gen_ops.largeout_class_top_k(
        features,
        handle_of(embeddings_handle),
        optional_handle(bias_handle),
        [] if packed is None else [packed.codes],
        [] if packed is None else [packed.scales],
        tf.cast(k, tf.int64),
    )


def class_softmax_gradient(
    features: tf.Tensor,
    embeddings_handle: VariableOrHandle,
    bias_handle: VariableOrHandle | None,
    log_partition: tf.Tensor,
    weights: tf.Tensor,
    labels: tf.Tensor | None = None,
    label_weights: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
    """Gradient of `sum_b weights_b · log_partition_b`, by recomputed probabilities.

    With labels, of `sum_b weights_b · log_partition_b + sum_bl label_weights_bl ·
    o_{y_bl}`: a softmax loss in one pass. The probabilities are held for a block
    of classes only. Rows whose weights are all 0 take no part, even if NaN.

    Args:
        features: float32 `[batch, dim]`.
        embeddings_handle: handle of a float32 variable `[N, dim]`.
        bias_handle: handle of a float32 variable `[N]`, or None.
        log_partition: float32 `[batch]`, from `class_statistics`.
        weights: float32 `[batch]`.
        labels: int64 `[batch, num_labels]` in `[-1, N)`, -1 being padding; or None.
        label_weights: float32 `[batch, num_labels]`; or None.

    Returns:
        `(d_features, d_embeddings, d_bias)`: float32 `[batch, dim]`, `[N, dim]` and
        `[N]`, or None without a bias.
    """
    if labels is None:
        labels = tf.zeros([tf.shape(features)[0], 0], tf.int64)
        label_weights = tf.zeros([tf.shape(features)[0], 0])
    d_features, d_embeddings, d_bias = gen_ops.largeout_class_softmax_gradient(
        features,
        handle_of(embeddings_handle),
        optional_handle(bias_handle),
        log_partition,
        weights,
        labels,
        label_weights,
    )
    return d_features, d_embeddings, d_bias[0] if d_bias else None


@tf.RegisterGradient("LargeoutClassStatistics")
def _statistics_gradient(
    op: tf.Operation, d_log_partition: tf.Tensor, d_true_logits: tf.Tensor, d_ranks: tf.Tensor
) -> list[tf.Tensor | None]:
    features, embeddings, *bias = op.inputs[: 2 + op.get_attr("num_biases")]
    labels = op.inputs[2 + len(bias)]
    d_given = [d_true_logits] * op.get_attr("num_given")
    if d_given:
        labels, d_true_logits = labels[:, :0], d_true_logits[:, :0]
    d_features, d_embeddings, d_bias = gen_ops.largeout_class_softmax_gradient(
        features,
        embeddings,
        bias,
        op.outputs[0],
        d_log_partition,
        labels,
        d_true_logits,
        compute_type=op.get_attr("compute_type"),
    )
    return [d_features, d_embeddings, *d_bias, None, *d_given, None]


@tf.RegisterGradient("LargeoutLabelLogits")
def _label_logits_gradient(
    op: tf.Operation, d_true_logits: tf.Tensor
) -> list[tf.Tensor | None]:
    features, embeddings, *bias = op.inputs[: 2 + op.get_attr("num_biases")]
    none = tf.zeros(tf.shape(features)[:1])  # no part of a log partition
    d_features, d_embeddings, d_bias = gen_ops.largeout_class_softmax_gradient(
        features,
        embeddings,
        bias,
        none,
        none,
        op.inputs[2 + len(bias)],
        d_true_logits,
        compute_type=op.get_attr("compute_type"),
    )
    return [d_features, d_embeddings, *d_bias, None]


tf.no_gradient("LargeoutClassTopK")
tf.no_gradient("LargeoutPackClasses")
