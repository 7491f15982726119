"""Kernel trees: trees of sums over class rows, to sample classes by the quadratic kernel.

The state consists of variables or their handles, which the ops read and write in place: the
sums, float32 of `kernel_tree_shape`, and with a projection the projected rows, float32
`[num_classes, projected_dim]`. See `KernelTreeSampler` for the method.
"""

from typing import NamedTuple

import tensorflow as tf

from tf_largeout.ops.devices import handle_of, optional_handle
from tf_largeout.ops.library import gen_ops
from tf_largeout.types import VariableOrHandle

# As in custom_ops/core/kernel_tree/kernel_tree_shape.h.
_CHILDREN, _WIDTH_MULTIPLE = 4, 16


class Projection(NamedTuple):
    """Projection of the class rows to fewer dimensions before the tree sums them.

    `matrix` is `[projected_dim, dim]`, or with a bias `[projected_dim, dim + 1]`. The ops write
    the projected rows to `rows`, `[num_classes, projected_dim]`.
    """

    matrix: VariableOrHandle
    rows: VariableOrHandle


def kernel_tree_shape(num_classes: int, dim: int, leaf_size: int) -> tuple[int, int]:
    """Returns the shape of the sums of a tree, `(num_nodes, width)`. A bias adds 1 to `dim`."""
    nodes = total = -(-num_classes // min(leaf_size, num_classes))
    while nodes > 1:
        nodes = -(-nodes // _CHILDREN)
        total += nodes
    return total, -(-(dim * (dim + 1) // 2) // _WIDTH_MULTIPLE) * _WIDTH_MULTIPLE


def kernel_tree_build(
    embeddings: VariableOrHandle,
    bias: VariableOrHandle | None,
    sums: VariableOrHandle,
    leaf_size: int,
    projection: Projection | None = None,
) -> tf.Operation | None:
    """Builds a tree over all classes, in place, in O(num_classes dim^2).

    A bias is appended to each class row. Embeddings may be bfloat16 on a CPU. Nothing is
    written if a number is not finite, or so large that sums of squares overflow.
    """
    return gen_ops.largeout_kernel_tree_build(
        handle_of(embeddings),
        optional_handle(bias),
        _handles(projection),
        handle_of(sums),
        leaf_size=leaf_size,
    )


def kernel_tree_update(
    ids: tf.Tensor,
    embeddings: VariableOrHandle,
    bias: VariableOrHandle | None,
    sums: VariableOrHandle,
    leaf_size: int,
    projection: Projection | None = None,
) -> tf.Tensor:
    """Updates the tree after some rows have changed; returns how many leaves have changed.

    The leaves of these classes and the nodes above them are summed from scratch, so rounding
    errors do not accumulate. If no other class rows have changed, the result is bit-identical
    to that of `kernel_tree_build`. Ids may repeat, and -1 is ignored.
    """
    return gen_ops.largeout_kernel_tree_update(
        ids,
        handle_of(embeddings),
        optional_handle(bias),
        _handles(projection),
        handle_of(sums),
        leaf_size=leaf_size,
    )


def kernel_tree_sample(
    features: tf.Tensor,
    labels: tf.Tensor,
    seed: tf.Tensor,
    rows: VariableOrHandle,
    bias: VariableOrHandle | None,
    sums: VariableOrHandle,
    leaf_size: int,
    num_sampled: int,
    alpha: float,
    shared: bool = False,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Draws classes with replacement in proportion to `alpha <h, w_c>^2 + 1`.

    `num_sampled` is the number of draws per example; with `shared`, of the batch: each example
    makes `num_sampled / batch` of them, randomly rounded.

    Returns:
        `(ids, log_q, label_log_q)`: int64 `[batch, num_sampled]`, or with `shared`
        `[num_sampled]`; float32 like `ids`, the log of the probability that one draw gives the
        class, exact even if `sums` is stale; and the same for the labels, 0 for padding.
    """
    return gen_ops.largeout_kernel_tree_sample(
        features,
        labels,
        seed,
        handle_of(rows),
        optional_handle(bias),
        handle_of(sums),
        leaf_size=leaf_size,
        num_sampled=num_sampled,
        alpha=alpha,
        shared=shared,
    )


def _handles(projection: Projection | None) -> list[tf.Tensor]:
    return [] if projection is None else [handle_of(variable) for variable in projection]


tf.no_gradient("LargeoutKernelTreeSample")
