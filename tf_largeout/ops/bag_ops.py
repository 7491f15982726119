"""Weighted sums of rows of a table, without the rows of single ids in memory.

The table (float32 `[N, dim]`) is given as a resource variable or its handle and is read in
place. Its gradient is one `IndexedSlices` as in `row_dot_ops`: a row for each distinct id, ids
rising. A tape notices a variable that is given as such, not by its handle alone. Results are
the same to the bit on any number of threads.
"""

import tensorflow as tf

from tf_largeout.ops.handles import handle_of
from tf_largeout.ops.library import gen_ops
from tf_largeout.types import VariableOrHandle


def bag_sums(
    embeddings: VariableOrHandle,
    ids: tf.Tensor,
    weights: tf.Tensor,
    differentiate_weights: bool = True,
) -> tf.Tensor:
    """The sums over i of `weights[b, i] * embeddings[ids[b, i]]`.

    Args:
        embeddings: float32 variable `[N, dim]` or its handle.
        ids: int64 `[batch, num_ids]` in `[-1, N)`; -1 stands for no row.
        weights: float32 `[batch, num_ids]`; what stands beside -1 has no effect.
        differentiate_weights: Whether the weights have a gradient, which takes another pass
            over the rows.

    Returns:
        float32 `[batch, dim]`; 0 where a bag has no ids.

    Raises:
        tf.errors.InvalidArgumentError: If the shapes do not fit, or an id is neither -1 nor a
            row.
    """
    return gen_ops.largeout_bag_sums(
        handle_of(embeddings, watch=True),
        ids,
        weights,
        differentiate_weights=differentiate_weights,
    )


@tf.RegisterGradient("LargeoutBagSums")
def _bag_sums_gradient(
    op: tf.Operation, d_sums: tf.Tensor
) -> tuple[tf.IndexedSlices, None, tf.Tensor | None]:
    embeddings, ids, weights = op.inputs
    row_ids, d_rows, shape = gen_ops.largeout_bag_sums_grad(embeddings, ids, weights, d_sums)
    d_weights = None
    if op.get_attr("differentiate_weights"):
        no_ids = tf.zeros([0], tf.int64)
        dots, _, _ = gen_ops.largeout_row_dots(d_sums, embeddings, [], ids, no_ids)
        d_weights = tf.where(ids >= 0, dots, 0)
    return tf.IndexedSlices(d_rows, row_ids, shape), None, d_weights
