"""Exact passes over all classes that never hold [batch, num_classes].

With `N` classes, the logits are `o_c = <w_c, h> + b_c`; they are made a small
tile at a time and used up in registers. The embeddings (float32 [N, dim]) and
the bias (float32 [N]) are given as handles of resource variables and are read in
place, also where a dense read would copy them. Results are the same to the bit
on any number of threads. Features of other types than float32: cast them before.
"""

import tensorflow as tf

from tf_largeout.ops.library import gen_ops


def class_statistics(features, embeddings_handle, bias_handle, labels):
    """Log partition function and exact ranks of the labels, in one pass.

    Args:
        features: float32 [batch, dim].
        embeddings_handle: handle of a float32 variable [N, dim].
        bias_handle: handle of a float32 variable [N], or None.
        labels: int64 [batch, num_labels] in [-1, N); -1 is padding.

    Returns:
        A tuple of
        log_partition: float32 [batch], `log(sum_c exp(o_c))`.
        true_logits: float32 [batch, num_labels], 0 at padding.
        ranks: int64 [batch, num_labels], the number of classes that score
            higher, ties going to the lower id; N at padding and where the logit
            is NaN or -inf.
    """
    return gen_ops.largeout_class_statistics(
        features, embeddings_handle, _as_list(bias_handle), labels
    )


def class_top_k(features, embeddings_handle, bias_handle, k):
    """The k classes with the highest logits, exactly. Not differentiable.

    Args:
        features: float32 [batch, dim].
        embeddings_handle: handle of a float32 variable [N, dim].
        bias_handle: handle of a float32 variable [N], or None.
        k: integer in [1, N].

    Returns:
        A tuple of
        scores: float32 [batch, k], falling.
        ids: int64 [batch, k]; of equal scores the lower id first, and logits
            that are NaN or -inf last.
    """
    return gen_ops.largeout_class_top_k(
        features, embeddings_handle, _as_list(bias_handle), tf.cast(k, tf.int64)
    )


def _as_list(bias_handle):
    return [] if bias_handle is None else [bias_handle]


tf.no_gradient("LargeoutClassTopK")
