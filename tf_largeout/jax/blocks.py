"""Exact passes over all classes in blocks.

They hold the scores of one block of classes, never of all, and do not copy the table. The
classes are `table`, float32 or bfloat16 `[N, dim]`, with `bias`, `[N]` or None, and a
`steps.Form`. Queries are float32 `[B, dim]`, from `Form.queries`.
"""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

if TYPE_CHECKING:
    from tf_largeout.jax.steps import Form

# The largest number of floats in a block, 4 MiB: the fastest on a core with 1 MiB of cache.
_NUMBERS_OF_A_BLOCK = 2**20
_LOWEST = jnp.finfo(jnp.float32).min
# Logits of equal rows may differ by this part of the sum of the magnitudes of their products,
# because matrix products of different shapes add in different orders.
_ROUNDING = 2.0**-22
# `top_k` sorts the classes only of the groups with the largest maxima.
_GROUP = 32


class ClassStatistics(NamedTuple):
    """Exact statistics of `B` examples with `L` labels each.

    A rank is the number of classes that are not excluded and have a larger logit than the
    label, or an equal one and a lower id. It is `N` at padding, for an excluded label, and
    where the logit is NaN or -inf.
    """

    log_partition: Array  # float32 [B], log of the sum over all classes of exp(logit)
    true_logits: Array  # float32 [B, L], of the labels; 0 at padding, NaN out of range
    ranks: Array  # int32 [B, L]


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def log_partition_and_mean(
    queries: Array, table: Array, bias: Array | None, form: "Form"
) -> tuple[Array, Array]:
    """Returns the log of the sum of `exp(logit)`, and the mean logit, float32 `[B]` each.

    They have gradients; that of the table is a dense array in its dtype. The backward pass
    computes the logits again.
    """

    def add(state: Any, first: Any, size: int) -> Any:
        logits = form.capped(_logits(form, queries, *_read(table, bias, first, size)))
        return _with_block(state[0], logits), state[1] + logits.sum(axis=1)

    zeros = jnp.zeros(queries.shape[0])
    log_sums, total = _fold(queries, len(table), add, (_no_sums(queries), zeros))
    return _log_partition(log_sums), total / len(table)


def _forward(queries: Array, table: Array, bias: Array | None, form: "Form") -> Any:
    found = log_partition_and_mean(queries, table, bias, form)
    return found, (queries, table, bias, found[0])


def _backward(form: "Form", saved: Any, gradients: Any) -> Any:
    queries, table, bias, log_partition = saved
    weights, of_mean = gradients
    # Examples of weight 0, such as masked ones, change nothing even if they are not finite.
    queries = jnp.where(((weights != 0) | (of_mean != 0))[:, None], queries, 0)

    def add(state: Any, first: Any, size: int) -> Any:
        def scores(queries: Array, rows: Array, bias: Array | None) -> Array:
            # Products of shape `[n, B]` have the faster derivatives.
            logits = jnp.matmul(form.rows(rows), queries.T, precision=lax.Precision.HIGHEST)
            return form.capped(logits if bias is None else logits + bias[:, None])

        found, pull_back = jax.vjp(scores, queries, *_read(table, bias, first, size))
        shares = jnp.exp(found - log_partition) * weights
        parts = pull_back(jnp.where(weights != 0, shares, 0) + of_mean / len(table))
        of_classes = jax.tree.map(
            lambda whole, part: lax.dynamic_update_slice_in_dim(whole, part, first, 0),
            state[1],
            parts[1:],
        )
        return state[0] + parts[0], of_classes

    # XLA for CPUs updates arrays in place only if they are float32.
    nothing = jax.tree.map(lambda one: jnp.zeros(one.shape), (queries, (table, bias)))
    of_queries, (of_table, of_bias) = _fold(queries, len(table), add, nothing)
    of_bias = None if bias is None else of_bias.astype(bias.dtype)
    return of_queries, of_table.astype(table.dtype), of_bias


log_partition_and_mean.defvjp(_forward, _backward)


def statistics(
    queries: Array,
    table: Array,
    bias: Array | None,
    form: "Form",
    label_ids: Array,
    excluded: Array | None = None,
) -> ClassStatistics:
    """Returns `ClassStatistics` of labels, int32 `[B, L]`, padded with -1, by one pass.

    `excluded`, int32 `[B, n]` padded with -1, are classes that are not ranked; they may repeat.
    Logits whose difference is below the rounding error count as equal. There is no gradient.
    """
    queries, table, bias = lax.stop_gradient((queries, table, bias))
    # Labels come first, so that columns of only padding take no time.
    order = jnp.argsort(label_ids, axis=1, descending=True)
    ids = jnp.take_along_axis(label_ids, order, axis=1)
    num_columns = (ids >= 0).any(axis=0).sum()
    true_logits, error = _label_logits(queries, table, bias, form, ids)
    has_rank = (ids >= 0) & (true_logits > -jnp.inf)
    once = None if excluded is None else _without_repeats(excluded)
    if excluded is not None:
        has_rank &= ~(ids[:, :, None] == excluded[:, None]).any(axis=2)

    def number_above(scores: Array, classes: Array, column: Any) -> Array:
        """Returns how many of the classes, `[B or 1, n]`, rank above the labels, `[B]`."""
        own, logit, margin = (
            lax.dynamic_slice_in_dim(one, column, 1, axis=1)
            for one in (ids, true_logits, error)
        )
        is_above = (scores > logit + margin) & (classes != own)
        is_above = jnp.where(classes < own, scores >= logit - margin, is_above)
        return is_above.sum(axis=1, dtype=jnp.int32)

    def add(state: Any, first: Any, size: int) -> Any:
        log_sums, ranks = state
        logits = _logits(form, queries, *_read(table, bias, first, size))
        if once is not None:
            in_block = (once >= first) & (once < first + size)
            left_out = jnp.take_along_axis(logits, jnp.where(in_block, once - first, 0), axis=1)
            left_out = jnp.where(in_block, left_out, -jnp.inf)

        def count(column: Any, ranks: Array) -> Array:
            found = number_above(logits, (first + jnp.arange(size))[None], column)
            if once is not None:
                found -= number_above(left_out, once, column)
            return ranks.at[:, column].add(found)

        ranks = lax.fori_loop(0, num_columns, count, ranks)
        return _with_block(log_sums, form.capped(logits)), ranks

    state = _no_sums(queries), jnp.zeros(ids.shape, jnp.int32)
    log_sums, ranks = _fold(queries, len(table), add, state)
    true_logits = jnp.where(ids == -1, 0, form.capped(true_logits))
    ranks, back = jnp.where(has_rank, ranks, len(table)), jnp.argsort(order, axis=1)
    found = (jnp.take_along_axis(one, back, axis=1) for one in (true_logits, ranks))
    return ClassStatistics(_log_partition(log_sums), *found)


def top_k(
    queries: Array,
    table: Array,
    bias: Array | None,
    form: "Form",
    k: int,
    excluded: Array | None = None,
    classes: Array | None = None,
) -> tuple[Array, Array]:
    """Returns the `k` best classes: scores, float32 `[B, k]`, and int32 ids, best first.

    Of equal scores, the lower id is first. NaN and -inf are last, with the score -inf. If fewer
    classes are left, the result is padded with -inf and -1. `excluded` is that of `statistics`.
    `classes`, int32 `[m]`, rising, are the only ones that are scored; None for all.
    """
    if classes is not None and excluded is not None:  # from ids to places in `classes`
        places = jnp.searchsorted(classes, excluded)
        is_found = jnp.append(classes, -1)[places] == excluded
        excluded = jnp.where(is_found, places, -1)

    def add(best: tuple[Array, Array], first: Any, size: int) -> Any:
        logits = _logits(form, queries, *_read(table, bias, first, size, classes))
        logits = jnp.where(logits > _LOWEST, logits, _LOWEST)  # above classes that are left out
        if excluded is not None:
            in_block = (excluded >= first) & (excluded < first + size)
            places = jnp.where(in_block, excluded - first, size)
            examples = jnp.arange(len(queries))[:, None]
            logits = logits.at[examples, places].set(-jnp.inf, mode="drop")
        scores, places = _best_candidates(logits, k)
        scores = jnp.concatenate([best[0], scores], axis=1)
        ids = jnp.concatenate([best[1], first + places], axis=1)
        scores, order = lax.top_k(scores, k)
        return scores, jnp.take_along_axis(ids, order, axis=1)

    shape = len(queries), k
    nothing = jnp.full(shape, -jnp.inf), jnp.full(shape, -1, jnp.int32)
    count = len(table if classes is None else classes)
    scores, ids = _fold(queries, count, add, nothing)
    if classes is not None:
        ids = jnp.append(classes, -1)[ids]
    ids = jnp.where(scores > -jnp.inf, ids, -1)
    return jnp.where(scores > _LOWEST, form.capped(scores), -jnp.inf), ids


def _best_candidates(logits: Array, k: int) -> tuple[Array, Array]:
    """Returns logits, `[B, m]`, and their columns, rising, that contain the `k` best."""
    padding = ((0, 0), (0, -logits.shape[1] % _GROUP))
    logits = jnp.pad(logits, padding, constant_values=-jnp.inf)
    groups = logits.reshape(len(logits), logits.shape[1] // _GROUP, _GROUP)
    chosen = lax.top_k(groups.max(axis=2), min(k, groups.shape[1]))[1]
    chosen = jnp.sort(chosen, axis=1)[:, :, None]
    columns = chosen * _GROUP + jnp.arange(_GROUP)
    found = jnp.take_along_axis(groups, chosen, axis=1)
    width = chosen.shape[1] * _GROUP
    return tuple(one.reshape(len(logits), width) for one in (found, columns))


def _fold(queries: Array, count: int, function: Callable[..., Any], state: Any) -> Any:
    """Returns the last `state = function(state, first, size)` of all blocks of classes.

    `size` is an int. All blocks have one size, except for the last, which comes after the loop.
    """
    largest = max(*queries.shape, 1)
    block = min(max(_NUMBERS_OF_A_BLOCK // largest // _GROUP * _GROUP, 2 * _GROUP), count)
    if count == 0:
        return state
    whole, rest = divmod(count, block)
    state = lax.fori_loop(0, whole, lambda i, one: function(one, i * block, block), state)
    return function(state, jnp.int32(whole * block), rest) if rest else state


def _read(table: Array, bias: Array | None, first: Any, size: int, classes: Any = None) -> Any:
    """Returns the float32 rows and biases of a block, of all classes or of `classes`."""
    # Otherwise XLA for CPUs would convert a whole table of bfloat16 before the loop.
    table, first = lax.optimization_barrier((table, first))
    if classes is not None:
        classes = lax.dynamic_slice_in_dim(classes, first, size)

    def read(values: Array) -> Array:
        slice_of = lax.dynamic_slice_in_dim
        part = slice_of(values, first, size) if classes is None else values[classes]
        return part.astype(jnp.float32)

    return jax.tree.map(read, (table, bias))


def _logits(form: "Form", queries: Array, rows: Array, bias: Array | None) -> Array:
    """Returns the logits of a block, float32 `[B, n]`, without the cap, which ranks leave out.

    Without full precision, GPUs and TPUs would round the factors to fewer bits.
    """
    logits = jnp.matmul(queries, form.rows(rows).T, precision=lax.Precision.HIGHEST)
    return logits if bias is None else logits + bias


def _label_logits(
    queries: Array, table: Array, bias: Array | None, form: "Form", ids: Array
) -> tuple[Array, Array]:
    """Returns logits `[B, L]` without the cap, NaN out of range, and a bound of their error."""
    is_class = (ids >= 0) & (ids < len(table))
    ids = jnp.where(is_class, ids, 0)
    terms = form.rows(table[ids]) * queries[:, None]
    if bias is not None:
        terms = jnp.concatenate([terms, bias[ids].astype(jnp.float32)[..., None]], axis=2)
    error = _ROUNDING * jnp.abs(terms).sum(axis=2)
    logits = jnp.where(is_class, terms.sum(axis=2), jnp.nan)
    return logits, jnp.where(jnp.isfinite(error), error, 0)


def _without_repeats(ids: Array) -> Array:
    """Returns ids `[B, n]` in order, with -1 in the place of repeats."""
    ordered = jnp.sort(ids, axis=1)
    is_repeat = ordered == jnp.roll(ordered, 1, axis=1)
    return jnp.where(is_repeat.at[:, :1].set(False), -1, ordered)


def _no_sums(queries: Array) -> tuple[Array, Array]:
    return jnp.full(len(queries), -jnp.inf), jnp.zeros(len(queries))


def _with_block(sums: tuple[Array, Array], logits: Array) -> Any:
    """Adds a block to `(m, s)`, whose sum of `exp(logit)` is `s exp(m)`; m is the largest."""
    largest = jnp.maximum(sums[0], logits.max(axis=1))
    shift = jnp.where(jnp.isfinite(largest), largest, 0)
    added = jnp.exp(logits - shift[:, None]).sum(axis=1)
    return largest, sums[1] * jnp.exp(sums[0] - shift) + added


def _log_partition(sums: tuple[Array, Array]) -> Array:
    largest, total = sums
    return jnp.log(total) + jnp.where(jnp.isfinite(largest), largest, 0)
