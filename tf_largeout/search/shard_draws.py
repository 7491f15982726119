"""Which shards of the classes draws and found classes come from."""

from collections.abc import Sequence

import tensorflow as tf

_SEED_BITS = 48  # above those of seeds and of replicas
_GOLDEN_RATIO = 0.6180339887498949


def seed_of(seed: tf.Tensor, number: int) -> tf.Tensor:
    """A seed of the `number`-th of several draws, int64 `[2]`; the first has `seed` itself."""
    return seed + [number << _SEED_BITS, 0]


def draw_shards(shares: tf.Tensor, num_draws: int, seed: tf.Tensor) -> tf.Tensor:
    """The shards of draws, independent of each other.

    Args:
        shares: Float `[batch, num_shards]`, in proportion to which the shards are drawn.
        num_draws: Number of draws of a row.
        seed: int64 `[2]`.

    Returns:
        int32 `[batch, num_draws]`.
    """
    shape = [tf.shape(shares)[0], num_draws]
    # In 64 bits: 2^24 steps would be too coarse for shards of small shares.
    uniform = tf.random.stateless_uniform(shape, seed, dtype=tf.float64, alg="philox")
    cumulative = tf.cumsum(tf.cast(shares, tf.float64), axis=1)
    owner = tf.searchsorted(cumulative, uniform * cumulative[:, -1:], side="right")
    return tf.minimum(owner, tf.shape(shares)[1] - 1)


def spread_shards(sizes: tf.Tensor, num_draws: int, seed: tf.Tensor) -> tf.Tensor:
    """The shards of draws, each in proportion to the sizes, but as evenly as can be.

    Draw i has the shard where `u + i * phi`, without its whole part, falls, u uniform and phi
    the golden ratio: of any draws that follow each other the shards have about their shares.

    Args:
        sizes: int64 `[num_shards]`; no draw has a shard of size 0, unless all are.
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
    num_classes: Sequence[int],
    seed: tf.Tensor | None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """One list of what each shard found for the rows of a batch, in its order.

    Of the first classes of the list each shard has as many as are its share of `num_met`; those
    that were drawn uniformly follow, of each shard by its share of `num_classes`.

    Args:
        found: For each shard int64 `[batch, n]`, distinct classes, ending in -1 where there
            are fewer; before that with uniform draws.
        num_filled: For each shard integers `[batch]`, how many were drawn uniformly.
        num_met: For each shard integers `[batch]`, what its share is in proportion to.
        num_classes: For each shard, how many classes it has.
        seed: int64 `[2]`, for how far each shard is from its next class at the start; None
            for half way.

    Returns:
        `(ids, num_filled)`: int64 `[batch, n]`, and int64 `[batch]`, how many of these were
        drawn uniformly.
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
        # Those that were met come before `num_found + 1`, as at least one entry is each.
        after_all = (
            num_found + 1 + (place - tf.cast(first_filled, tf.float64)) / num_classes[number]
        )
        key = tf.where(is_filled, after_all, place / met)
        keys.append(tf.where(ids >= 0, key, float("inf")))
        uniform.append(is_filled & (ids >= 0))
    best = tf.math.top_k(-tf.concat(keys, axis=1), num_found).indices
    ids, drawn = (
        tf.gather(tf.concat(parts, axis=1), best, batch_dims=1) for parts in (found, uniform)
    )
    return ids, tf.math.count_nonzero(drawn, axis=1)
