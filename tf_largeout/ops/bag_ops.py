"""Weighted sums of rows of a table, computed without gathering the rows.

The table, its gradient and the effect of threads are as in `row_dot_ops`.
"""

import tensorflow as tf

from tf_largeout.ops.devices import handle_of
from tf_largeout.ops.library import gen_ops
from tf_largeout.types import VariableOrHandle


def bag_sums(
    embeddings: VariableOrHandle,
    ids: tf.Tensor,
    weights: tf.Tensor,
    differentiate_weights: bool = True,
) -> tf.Tensor:
    """Sums table rows with weights: the sum over i of `weights[b, i] * embeddings[ids[b, i]]`.

    The gradient of the weights takes another pass over the rows, unless
    `differentiate_weights` is false. The sum of a bag without ids is 0.
    """
    table = handle_of(embeddings, watch=True)
    return gen_ops.largeout_bag_sums(table, ids, weights, differentiate_weights)


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
