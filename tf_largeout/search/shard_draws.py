"""Chooses the shards that draws and found rows come from."""

from collections.abc import Sequence

import tensorflow as tf

_SEED_BITS = 48  # above those of seeds and of replicas
_GOLDEN_RATIO = 0.6180339887498949


def seed_of(seed: tf.Tensor, number: int) -> tf.Tensor:
    """Returns the seed of draw `number` of several, int64 `[2]`; draw 0 has `seed` itself."""
    return seed + [number << _SEED_BITS, 0]


def draw_shards(shares: tf.Tensor, num_draws: int, seed: tf.Tensor) -> tf.Tensor:
    """Draws shards independently.

    Args:
        shares: Float `[batch, num_shards]`; the probabilities are in proportion to them.
        num_draws: Number of draws per query.
        seed: int64 `[2]`.

    Returns:
        int32 `[batch, num_draws]`.
    """
    shape = [tf.shape(shares)[0], num_draws]
    # In 64 bits, because float32 is too coarse for small shares.
    uniform = tf.random.stateless_uniform(shape, seed, dtype=tf.float64, alg="philox")
    cumulative = tf.cumsum(tf.cast(shares, tf.float64), axis=1)
    owner = tf.searchsorted(cumulative, uniform * cumulative[:, -1:], side="right")
    return tf.minimum(owner, tf.shape(shares)[1] - 1)


def spread_shards(sizes: tf.Tensor, num_draws: int, seed: tf.Tensor) -> tf.Tensor:
    """Draws shards in proportion to their sizes, spread as evenly as possible.

    Draw i takes the shard into which the fractional part of `u + i * phi` falls, with u uniform
    and phi the golden ratio. So any consecutive draws contain about the right share of each
    shard.

    Args:
        sizes: int64 `[num_shards]`. A shard of size 0 is not drawn, unless all are empty.
        num_draws: Number of draws.
        seed: int64 `[2]`.

    Returns:
        int32 `[num_draws]`.
    """
    start = tf.random.stateless_uniform([], seed, dtype=tf.float64, alg="philox")
    points = (start + _GOLDEN_RATIO * tf.range(num_draws, dtype=tf.float64)) % 1
    ends = tf.cumsum(sizes)
    places = tf.cast(points * tf.cast(ends[-1], tf.float64), tf.int64)
    owner = tf.searchsorted(ends, tf.minimum(places, ends[-1] - 1), side="right")
    return tf.minimum(owner, sizes.shape[0] - 1)


def merge_found(
    found: Sequence[tf.Tensor],
    num_filled: Sequence[tf.Tensor],
    num_met: Sequence[tf.Tensor],
    num_rows: Sequence[int],
    seed: tf.Tensor | None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Merges the rows that each shard found for the queries of a batch; keeps their order.

    First come rows that the query found in its buckets ("met"), from each shard in proportion
    to `num_met`. Then follow rows that were drawn uniformly, from each shard in proportion to
    `num_rows`.

    Args:
        found: For each shard int64 `[batch, n]`, distinct rows: rows that were met, then
            uniform draws, then padding with -1.
        num_filled: For each shard integers `[batch]`, the number of uniform draws.
        num_met: For each shard integers `[batch]`, the weight of the shard.
        num_rows: For each shard, its number of rows.
        seed: int64 `[2]`, for the position of each shard's first row in the order; None for
            the middle of its interval.

    Returns:
        `(ids, num_filled)`: int64 `[batch, n]`, and int64 `[batch]`, the number of uniform
        draws among them.
    """
    keys, uniform, num_found = [], [], found[0].shape[1]
    shape = [len(found), tf.shape(found[0])[0], 1]
    starts = tf.fill(shape, tf.constant(0.5, tf.float64))
    if seed is not None:
        starts = tf.random.stateless_uniform(shape, seed, dtype=tf.float64, alg="philox")
    for number, ids in enumerate(found):
        place = starts[number] + tf.range(num_found, dtype=tf.float64)
        num_ids = tf.math.count_nonzero(ids >= 0, axis=1, dtype=tf.int64)[:, tf.newaxis]
        first_filled = num_ids - tf.cast(num_filled[number], tf.int64)[:, tf.newaxis]
        is_filled = tf.range(num_found, dtype=tf.int64) >= first_filled
        met = tf.cast(tf.maximum(num_met[number], 1), tf.float64)[:, tf.newaxis]
        # Keys of rows that were met are below `num_found + 1`, because `met` is at least 1.
        after_all = (
            num_found + 1 + (place - tf.cast(first_filled, tf.float64)) / num_rows[number]
        )
        key = tf.where(is_filled, after_all, place / met)
        keys.append(tf.where(ids >= 0, key, float("inf")))
        uniform.append(is_filled & (ids >= 0))
    best = tf.math.top_k(-tf.concat(keys, axis=1), num_found).indices
    ids, drawn = (
        tf.gather(tf.concat(parts, axis=1), best, batch_dims=1) for parts in (found, uniform)
    )
    return ids, tf.math.count_nonzero(drawn, axis=1)
