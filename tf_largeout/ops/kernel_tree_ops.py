"""Kernel trees: sums of classes from which classes are drawn by the quadratic kernel.

State is variables, given as such or as their handles, which the ops read and write in place:
the sums, float32 of `kernel_tree_shape`, and with a projection the projected rows, float32
`[num_classes, projected_dim]`. See `KernelTreeSampler` for the method.
"""

from typing import NamedTuple

import tensorflow as tf

from tf_largeout.ops.handles import handle_of, optional_handle
from tf_largeout.ops.library import gen_ops
from tf_largeout.types import VariableOrHandle

# As in custom_ops/core/kernel_tree_shape.h.
_CHILDREN, _WIDTH_MULTIPLE = 4, 16


class Projection(NamedTuple):
    """What a tree sums instead of the rows of the classes: these, times a matrix.

    Attributes:
        matrix: float32 variable `[projected_dim, dim]`, with a bias `[projected_dim, dim + 1]`.
        rows: float32 variable `[num_classes, projected_dim]`, which the ops write.
    """

    matrix: VariableOrHandle
    rows: VariableOrHandle


def kernel_tree_shape(num_classes: int, dim: int, leaf_size: int) -> tuple[int, int]:
    """The shape of the sums of a tree.

    Args:
        num_classes: Number of classes.
        dim: Numbers of a row that is summed, with its bias if there is one.
        leaf_size: Classes of a leaf.

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
    """Sums the rows of all classes, in place, in O(num_classes dim^2).

    Args:
        embeddings: float32 variable `[num_classes, dim]`.
        bias: float32 variable `[num_classes]`, which is one more number of the rows, or None.
        sums: float32 variable of `kernel_tree_shape`.
        leaf_size: Classes of a leaf.
        projection: If the tree is over projected rows.

    Returns:
        The operation (None when executing eagerly).

    Raises:
        tf.errors.InvalidArgumentError: If a variable has another shape; or a row, a bias or the
            projection is not finite, or so large that sums of squares overflow. Then nothing is
            written.
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
    """Brings the sums up to date with the rows of some classes, in place.

    They are projected, if there is a projection, and their leaves are summed anew, and the
    nodes above: no sum drifts. If no other rows have changed, all is bit for bit what
    `kernel_tree_build` makes.

    Args:
        ids: int64 `[num_ids]` in `[-1, num_classes)`; may repeat, -1 is none.
        embeddings: As `kernel_tree_build`, like those that follow.
        bias: Variable or None.
        sums: Variable.
        leaf_size: Classes of a leaf.
        projection: If the tree is over projected rows.

    Returns:
        int64 scalar: how many of the leaves have other sums than before.

    Raises:
        tf.errors.InvalidArgumentError: As `kernel_tree_build`, for the rows that are read:
            those of the ids, or without a projection all of their leaves; or if an id is
            out of range.
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
        features: float32 `[batch, dim]`, of the rows that are summed.
        labels: int64 `[batch, num_labels]` in `[-1, num_classes)`, padded with -1.
        seed: int64 `[2]`; all 128 bits count.
        rows: float32 variable `[num_classes, dim]`: embeddings or projected rows.
        bias: float32 variable `[num_classes]`, or None; None for projected rows.
        sums: As `kernel_tree_build` left it.
        leaf_size: The one that it was built with.
        num_sampled: Draws of each row; with `shared` of all rows together, of each about
            `num_sampled / batch`, and exactly that in the mean.
        alpha: Weight of the square, above 0.
        shared: Whether the rows draw one pool together.

    Returns:
        `(ids, log_q, label_log_q)`:

        * `ids`: int64 `[batch, num_sampled]`, with `shared` `[num_sampled]`.
        * `log_q`: float32 like `ids`, log of the probability that one draw of its row gives the
          class: the one with which it was drawn, also where the sums are out of date.
        * `label_log_q`: float32 `[batch, num_labels]`, that of the labels; 0 for padding.

    Raises:
        tf.errors.InvalidArgumentError: If features are not finite or their products with the
            rows overflow, a label is out of range, or a shape does not fit.
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
