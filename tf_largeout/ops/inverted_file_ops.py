"""Inverted files: lists of classes with similar directions, and searches in these lists.

The state is a tuple of variables, which the ops read and write in place: means, mean_bias,
offsets, ids, codes, scales, schedule. Initialize the schedule to `[0, -1]` and the others to
zeros: there are no lists yet, and a search finds nothing. See `InvertedFileSampler`.
"""

from collections.abc import Sequence

import tensorflow as tf

from tf_largeout.ops.devices import handle_of, optional_handle
from tf_largeout.ops.library import gen_ops
from tf_largeout.types import VariableOrHandle

# As in custom_ops/core/class_scan/packed_rows_simd.h.
_GROUP_ROWS, _CODES_TOGETHER, _PACKED_MULTIPLE = 16, 4, 16


def packed_shapes(num_classes: int, dim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the shapes of codes and scales for `num_classes` class rows of width `dim`."""
    groups = -(-num_classes // _GROUP_ROWS)
    width = -(-dim // _PACKED_MULTIPLE) * _PACKED_MULTIPLE
    codes = (groups, width // _CODES_TOGETHER, _GROUP_ROWS, _CODES_TOGETHER)
    return codes, (groups, 2, _GROUP_ROWS)


def inverted_file_search(
    features: tf.Tensor, state: Sequence[VariableOrHandle], num_probes: int, k: int | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds most of the `k` classes with the highest logits, by searching the best lists.

    Returns:
        `(scores, ids)`: float32 and int64 `[batch, k]`, best first, padded with -inf and -1.
        The scores are logits of the quantized rows, which have the values of the last fit or
        reassignment. A query that is not finite finds no class.
    """
    return gen_ops.largeout_inverted_file_search(
        features, *map(handle_of, state[:6]), tf.cast(k, tf.int64), num_probes=num_probes
    )


def inverted_file_fit(
    embeddings: VariableOrHandle,
    bias: VariableOrHandle | None,
    state: Sequence[VariableOrHandle],
    unit_length: bool = False,
) -> tf.Operation | None:
    """Fits new lists in place: k-means on a sample of the classes, then one pass over all.

    The embeddings may be bfloat16 on a CPU.
    """
    return gen_ops.largeout_inverted_file_fit(
        handle_of(embeddings),
        optional_handle(bias),
        *map(handle_of, state),
        unit_length=unit_length,
    )


def inverted_file_upkeep(
    embeddings: VariableOrHandle,
    bias: VariableOrHandle | None,
    state: Sequence[VariableOrHandle],
    interval: int,
    rows_a_step: int,
    unit_length: bool = False,
) -> tf.Operation | None:
    """Maintains the lists during one training step, in place. Fits them if there are none."""
    return gen_ops.largeout_inverted_file_upkeep(
        handle_of(embeddings),
        optional_handle(bias),
        *map(handle_of, state),
        interval=interval,
        rows_a_step=rows_a_step,
        unit_length=unit_length,
    )


def inverted_file_fitted(
    embeddings: tf.Tensor,
    bias: tf.Tensor | None,
    state: Sequence[tf.Tensor],
    unit_length: bool = False,
) -> tuple[tf.Tensor, ...]:
    """Runs `inverted_file_fit` on tensors, on the CPU; returns the seven of the new state."""
    biases = [] if bias is None else [bias]
    return gen_ops.largeout_inverted_file_fitted(
        embeddings, biases, *state, unit_length=unit_length
    )


def inverted_file_kept_up(
    embeddings: tf.Tensor,
    bias: tf.Tensor | None,
    state: Sequence[tf.Tensor],
    interval: int,
    rows_a_step: int,
    unit_length: bool = False,
) -> tuple[tf.Tensor, ...]:
    """Runs `inverted_file_upkeep` on tensors, as `inverted_file_fitted` does."""
    return gen_ops.largeout_inverted_file_kept_up(
        embeddings,
        [] if bias is None else [bias],
        *state,
        interval=interval,
        rows_a_step=rows_a_step,
        unit_length=unit_length,
    )


tf.no_gradient("LargeoutInvertedFileSearch")
tf.no_gradient("LargeoutInvertedFileFitted")
tf.no_gradient("LargeoutInvertedFileKeptUp")
