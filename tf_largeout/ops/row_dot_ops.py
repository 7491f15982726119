"""Logits of different classes for each example, computed without gathering the class rows.

The embeddings (float32 `[N, dim]`, or on a CPU bfloat16) and the bias (float32 `[N]`) are
resource variables or their handles, and are read in place. Rows in bfloat16 are widened, and
results and gradients are float32, bit-identical to those of equal float32 rows. Gradients of
the variables are `IndexedSlices` with one gradient row per distinct class, in ascending order
of ids. On a GPU, gradient rows of zeros with id -1 follow, up to the number of ids or of
classes, because the host does not wait for the number of distinct classes. Row-sparse
optimizers ignore them. A `GradientTape` records the variables only if they are passed
themselves, not as handles. Results are bit-identical for any number of threads.
"""

import tensorflow as tf

from tf_largeout.ops.devices import handle_of, optional_handle
from tf_largeout.ops.library import gen_ops
from tf_largeout.types import VariableOrHandle


def row_dots(
    features: tf.Tensor,
    embeddings: VariableOrHandle,
    ids: tf.Tensor,
    bias: VariableOrHandle | None = None,
) -> tf.Tensor:
    """Returns the logits of `row_dots_and_rows`, `<w_id, h_b> + b_id`, without shared ids."""
    return row_dots_and_rows(features, embeddings, bias, ids, tf.zeros([0], tf.int64))[0]


def row_dots_and_rows(
    features: tf.Tensor,
    embeddings: VariableOrHandle,
    bias: VariableOrHandle | None,
    ids: tf.Tensor,
    shared_ids: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
    """Computes the logits of classes of each example, and gathers rows that the batch shares.

    As this is one op, each variable gets one `IndexedSlices` gradient. The gradients of two ops
    would be concatenated.

    Returns:
        `(logits, shared_rows, shared_biases)`: float32 `[batch, num_ids]`, the lowest float32
        with a gradient of 0 for padding; float32 `[num_shared, dim]`; and float32
        `[num_shared]`, or None without a bias.
    """
    logits, rows, biases = gen_ops.largeout_row_dots(
        tf.cast(features, tf.float32),
        handle_of(embeddings, watch=True),
        optional_handle(bias, watch=True),
        ids,
        shared_ids,
    )
    return logits, rows, biases[0] if biases else None


@tf.RegisterGradient("LargeoutRowDots")
def _row_dots_gradient(
    op: tf.Operation, d_logits: tf.Tensor, d_shared_rows: tf.Tensor, *d_shared_biases: tf.Tensor
) -> list[tf.Tensor | tf.IndexedSlices | None]:
    features, embeddings, *bias, ids, shared_ids = op.inputs
    d_features, row_ids, d_rows, shape, d_biases = gen_ops.largeout_row_dots_grad(
        features, embeddings, bias, ids, shared_ids, d_logits, d_shared_rows, d_shared_biases
    )
    slices = [tf.IndexedSlices(d_rows, row_ids, shape)]
    if d_biases:
        slices.append(tf.IndexedSlices(d_biases[0], row_ids, shape[:1]))
    return [d_features, *slices, None, None]
