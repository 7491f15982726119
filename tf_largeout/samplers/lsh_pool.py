"""One pool of classes for a batch, out of hash tables."""

import tensorflow as tf

from tf_largeout.ops import lsh_ops
from tf_largeout.ops.sampling_ops import uniform_sample


def draw(tables, vectors, codes, labels, layer, num_sampled):
    """Draws from all entries in the buckets of a batch, with expected counts for SimHash.

    An entry is drawn with probability 1 / E, and class c has `L sum_b (1 - theta_bc / pi)^K`
    of them in the mean over hash functions. Angles are those of now: between rebuilds the
    counts lag as far as the tables do. Without any entries the draws are uniform.

    Args:
        tables: `HashTables` of kind "simhash".
        vectors: float32 `[n, dim]`, what the batch asks with.
        codes: int32 `[batch, m * num_tables]`, their buckets.
        labels: int64 `[batch, num_labels]`, padded with -1.
        layer: The layer.
        num_sampled: Number of draws.

    Returns:
        The triple of `SampledValues`.
    """
    seed = layer.next_seed()
    pool, num_entries = lsh_ops.lsh_pool(*tables.variables(layer), codes, seed, num_sampled)

    def from_tables():
        ids = tf.concat([pool, tf.reshape(tf.maximum(labels, 0), [-1])], axis=0)
        rows = tf.gather(layer.local_variables()[0], ids)
        cosine = tf.matmul(_directions(vectors), _directions(rows), transpose_b=True)
        entries = tf.reduce_sum(tables.collision_probability(cosine), axis=0)
        counts = entries * (tables.num_tables * num_sampled / tf.cast(num_entries, tf.float32))
        true_counts = tf.reshape(counts[num_sampled:], tf.shape(labels))
        return pool, tf.where(labels >= 0, true_counts, 1.0), counts[:num_sampled]

    def uniform():
        return tuple(uniform_sample(labels, seed, layer.num_classes, num_sampled, unique=True))

    return tf.cond(num_entries > 0, from_tables, uniform)


def union(lists, layer, num_sampled):
    """The classes of lists int64 `[batch, width]`, the first of each first, filled up.

    Returns:
        `(pool, num_filled)`, see `lsh_ops.union_of_lists`.
    """
    return lsh_ops.union_of_lists(lists, layer.next_seed(), layer.num_classes, num_sampled)


def _directions(rows):
    """Rows of length 1; the zero vector stays: it is at right angles to all."""
    return tf.math.divide_no_nan(rows, tf.norm(rows, axis=1, keepdims=True))
