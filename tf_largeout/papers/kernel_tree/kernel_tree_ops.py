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

    Attributes:
        matrix: float32 variable `[projected_dim, dim]`, or with a bias
            `[projected_dim, dim + 1]`.
        rows: float32 variable `[num_classes, projected_dim]`, the projected class rows. The
            ops write it.
    """

    matrix: VariableOrHandle
    rows: VariableOrHandle


def kernel_tree_shape(num_classes: int, dim: int, leaf_size: int) -> tuple[int, int]:
    """Returns the shape of the sums of a tree.

    Args:
        num_classes: Number of classes.
        dim: Width of the rows that are summed. A bias counts as one more number.
        leaf_size: Number of classes per leaf.

    Returns:
        `(num_nodes, width)`.
    """
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

    Args:
        embeddings: float32 variable `[num_classes, dim]`, or on a CPU bfloat16.
        bias: float32 variable `[num_classes]`, or None. A bias is appended to each class row.
        sums: float32 variable of `kernel_tree_shape`.
        leaf_size: Number of classes per leaf.
        projection: Projection of the class rows; None sums the rows themselves.

    Returns:
        The operation (None when executing eagerly).

    Raises:
        tf.errors.InvalidArgumentError: If the shape of a variable does not match; or if a class
            row, a bias or the projection is not finite, or so large that sums of squares
            overflow. In these cases nothing is written.
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
    """Updates the tree after some class rows have changed, in place.

    The leaves of these classes and the nodes above them are summed from scratch, so rounding
    errors do not accumulate. If no other class rows have changed, the result is bit-identical
    to that of `kernel_tree_build`.

    `ids`, int64 `[num_ids]` in `[-1, num_classes)`, are the classes. They may repeat, and -1 is
    ignored. The other arguments are those of `kernel_tree_build`.

    Returns:
        int64 scalar: the number of leaves whose sums have changed.

    Raises:
        tf.errors.InvalidArgumentError: If an id is out of range, or for the reasons of
            `kernel_tree_build`. Only the class rows that are read are checked: with a
            projection those of `ids`, otherwise all rows of their leaves.
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

    Args:
        features: float32 `[batch, dim]`, projected if the tree is over projected rows.
        labels: int64 `[batch, num_labels]` in `[-1, num_classes)`, padded with -1.
        seed: int64 `[2]`; all 128 bits are used.
        rows: float32 variable `[num_classes, dim]`: embeddings or projected rows. On a CPU the
            embeddings may be bfloat16.
        bias: float32 variable `[num_classes]`, or None. Must be None for projected rows.
        sums: float32 variable, written by `kernel_tree_build`.
        leaf_size: Number of classes per leaf, as passed to `kernel_tree_build`.
        num_sampled: Number of draws per example. With `shared`, the number of draws for the
            batch: each example makes `num_sampled / batch` of them, randomly rounded.
        alpha: Weight of the square, above 0.
        shared: Whether the batch shares the drawn classes. Defaults to False.

    Returns:
        `(ids, log_q, label_log_q)`:

        * `ids`: int64 `[batch, num_sampled]`, or with `shared` `[num_sampled]`.
        * `log_q`: float32, in the shape of `ids`: log of the probability that one draw of its
          example gives the class. It is exact for the draws made, even if `sums` is stale.
        * `label_log_q`: float32 `[batch, num_labels]`, the same for the labels; 0 for padding.

    Raises:
        tf.errors.InvalidArgumentError: If features are not finite or their products with the
            class rows overflow, a label is out of range, or a shape does not match.
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
