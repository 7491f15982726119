"""Inverted files: lists of classes that point the same way, and the search in them.

State is a tuple of variables or their handles, which the ops read and write in place:
means float32 `[num_lists, dim]`, mean_bias float32 `[num_lists]`, offsets uint32
`[num_lists + 1]`, ids uint32 `[num_classes]`, codes uint8 and scales float32 of
`packed_shapes`; and the schedule int64 `[2]`, at first `[0, -1]`. All others are zero at
first: no lists, nothing is found. The members of list l are `ids[offsets[l]:offsets[l + 1]]`;
codes and scales are their rows at 8 bits per number, in the order of `ids`, 16 of them
interleaved as a processor multiplies them. See `InvertedFileSampler` for the method.
"""

from collections.abc import Iterable, Sequence

import tensorflow as tf

from tf_largeout.ops.handles import handle_of, optional_handle
from tf_largeout.ops.library import gen_ops
from tf_largeout.types import VariableOrHandle

# As in custom_ops/core/packed_rows_simd.h.
_GROUP_ROWS, _CODES_TOGETHER, _PACKED_MULTIPLE = 16, 4, 16


def packed_shapes(num_classes: int, dim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of the codes and the scales of `num_classes` rows of `dim` numbers."""
    groups = -(-num_classes // _GROUP_ROWS)
    width = -(-dim // _PACKED_MULTIPLE) * _PACKED_MULTIPLE
    codes = (groups, width // _CODES_TOGETHER, _GROUP_ROWS, _CODES_TOGETHER)
    return codes, (groups, 2, _GROUP_ROWS)


def inverted_file_search(
    features: tf.Tensor, state: Sequence[VariableOrHandle], num_probes: int, k: int | tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Most of the `k` classes of highest logit among `num_probes` lists per query.

    Args:
        features: float32 `[batch, dim]`.
        state: means, mean_bias, offsets, ids, codes, scales (a schedule is passed over).
        num_probes: Number of lists a query looks at; fewer, where these have as many members
            as so many lists of mean size.
        k: Number of classes to find, an integer of at least 1.

    Returns:
        `(scores, ids)`:

        * `scores`: float32 `[batch, k]`, falling; logits from rows at 8 bits per number, as
          they were when they were last packed; -inf where there is no class.
        * `ids`: int64 `[batch, k]`, -1 where fewer than `k` are found. Classes with rows or
          biases that are not finite are never found, nor is anything by such queries.
    """
    return gen_ops.largeout_inverted_file_search(
        features, *_handles(state[:6]), tf.cast(k, tf.int64), num_probes=num_probes
    )


def inverted_file_fit(
    embeddings: VariableOrHandle,
    bias: VariableOrHandle | None,
    state: Sequence[VariableOrHandle],
) -> tf.Operation | None:
    """Fits the lists anew, in place: k-means on a part of the rows, one pass over all.

    Args:
        embeddings: variable float32 `[num_classes, dim]`.
        bias: variable float32 `[num_classes]`, or None.
        state: means, mean_bias, offsets, ids, codes, scales, schedule. The draws of k-means
            depend on the step in the schedule alone: they are the same on all replicas.

    Returns:
        The operation (None when executing eagerly).

    Raises:
        tf.errors.InvalidArgumentError: If a variable has another shape than these, or the
            schedule no such numbers.
    """
    return gen_ops.largeout_inverted_file_fit(
        handle_of(embeddings), optional_handle(bias), *_handles(state)
    )


def inverted_file_upkeep(
    embeddings: VariableOrHandle,
    bias: VariableOrHandle | None,
    state: Sequence[VariableOrHandle],
    interval: int,
    rows_a_step: int,
) -> tf.Operation | None:
    """What the file needs in one training step, in place.

    A fit where there are no lists; from then on, every `interval` steps, the reassignment of
    the next `interval * rows_a_step` classes. Where nine in ten of them find another list, and
    one such turn lies behind, the lists are fitted anew.

    Args:
        embeddings: variable float32 `[num_classes, dim]`.
        bias: variable float32 `[num_classes]`, or None.
        state: The seven variables of `inverted_file_fit`.
        interval: Number of steps from one reassignment to the next.
        rows_a_step: Classes reassigned per step, in the mean.

    Returns:
        The operation (None when executing eagerly).

    Raises:
        tf.errors.InvalidArgumentError: As `inverted_file_fit`.
    """
    return gen_ops.largeout_inverted_file_upkeep(
        handle_of(embeddings),
        optional_handle(bias),
        *_handles(state),
        interval=interval,
        rows_a_step=rows_a_step,
    )


def inverted_file_fitted(
    embeddings: tf.Tensor, bias: tf.Tensor | None, state: Sequence[tf.Tensor]
) -> tuple[tf.Tensor, ...]:
    """`inverted_file_fit` of tensors, for variables on a GPU: it runs on the CPU.

    Args:
        embeddings: tensor float32 `[num_classes, dim]`.
        bias: tensor float32 `[num_classes]`, or None.
        state: Seven tensors.

    Returns:
        The seven tensors of the new state.
    """
    return gen_ops.largeout_inverted_file_fitted(embeddings, _optional(bias), *state)


def inverted_file_kept_up(
    embeddings: tf.Tensor,
    bias: tf.Tensor | None,
    state: Sequence[tf.Tensor],
    interval: int,
    rows_a_step: int,
) -> tuple[tf.Tensor, ...]:
    """`inverted_file_upkeep` of tensors, for variables on a GPU: it runs on the CPU.

    Args:
        embeddings: As `inverted_file_fitted`, like the next two.
        bias: Tensor or None.
        state: Seven tensors.
        interval: As `inverted_file_upkeep`, like the next.
        rows_a_step: Classes reassigned per step, in the mean.

    Returns:
        The seven tensors of the new state.
    """
    return gen_ops.largeout_inverted_file_kept_up(
        embeddings, _optional(bias), *state, interval=interval, rows_a_step=rows_a_step
    )


def _optional(value: tf.Tensor | None) -> list[tf.Tensor]:
    return [] if value is None else [value]


def _handles(state: Iterable[VariableOrHandle]) -> list[tf.Tensor]:
    return [handle_of(variable) for variable in state]


tf.no_gradient("LargeoutInvertedFileSearch")
tf.no_gradient("LargeoutInvertedFileFitted")
tf.no_gradient("LargeoutInvertedFileKeptUp")
