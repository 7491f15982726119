"""One pool of classes for a batch, out of hash tables."""

import tensorflow as tf

from tf_largeout.ops import lsh_ops
from tf_largeout.ops.sampling_ops import uniform_sample

UNIFORM_PART = 8  # one of so many draws is uniform


def draw(tables, vectors, codes, labels, layer, num_sampled):
    """Draws a few classes uniformly, the others from the buckets, with counts for SimHash.

    Of the m draws u are uniform. The others take an entry of the batch's buckets each, with
    probability 1 / E, and class c has `L sum_b p_bc` of the E entries in the mean over hash
    functions, `p_bc = (1 - theta_bc / pi)^K`. So class c is expected

        u / N + (m - u) L sum_b p_bc / E

    times (the deterministic mixture of Owen & Zhou 2000). The angles are those of now: between
    rebuilds the second term lags as far as the tables do, and is 0 for a class at -1 to all
    rows. The first bounds the weight of a class, and its reciprocal, by N / u whatever the
    angles are. Without any entries all draws are uniform.

    Args:
        tables: `HashTables` of kind "simhash".
        vectors: float32 `[n, dim]`, what the batch asks with.
        codes: int32 `[batch, k * num_tables]`, their buckets.
        labels: int64 `[batch, num_labels]`, padded with -1.
        layer: The layer.
        num_sampled: Number m of draws, at most N.

    Returns:
        The triple of `SampledValues`.
    """
    num_uniform = -(-num_sampled // UNIFORM_PART)
    seed, uniform_seed = layer.next_seed(), layer.next_seed()
    num_from_tables = num_sampled - num_uniform
    entries, num_entries = lsh_ops.lsh_pool(
        *tables.variables(layer), codes, seed, max(1, num_from_tables)
    )

    def uniform(number):
        return uniform_sample(labels[:0], uniform_seed, layer.num_classes, number, unique=True)

    has_entries = num_entries > 0
    pool = tf.cond(
        has_entries,
        lambda: tf.concat([entries[:num_from_tables], uniform(num_uniform)[0]], axis=0),
        lambda: uniform(num_sampled)[0],
    )
    share = tf.where(has_entries, num_uniform, num_sampled) / layer.num_classes
    weight = num_from_tables * tables.num_tables / tf.maximum(num_entries, 1)
    share, weight = tf.cast(share, tf.float32), tf.cast(weight, tf.float32)

    places = tf.where(labels >= 0)
    ids = tf.concat([pool, tf.gather_nd(labels, places)], axis=0)
    met = _collision_probabilities(tables, vectors, ids, layer)
    counts = share + weight * tf.reduce_sum(met, axis=0)
    ones = tf.ones(tf.shape(labels))
    true_counts = tf.tensor_scatter_nd_update(ones, places, counts[num_sampled:])
    return pool, true_counts, counts[:num_sampled]


def union(lists, layer, num_sampled):
    """The classes of lists int64 `[batch, width]`, the first of each first, filled up.

    Returns:
        `(pool, num_filled)`, see `lsh_ops.union_of_lists`.
    """
    return lsh_ops.union_of_lists(lists, layer.next_seed(), layer.num_classes, num_sampled)


def _collision_probabilities(tables, vectors, ids, layer):
    """`[n, number of ids]`: that a vector and a class share a bucket of one table."""
    rows = tf.gather(layer.local_variables()[0], ids)
    cosine = tf.matmul(_directions(vectors), _directions(rows), transpose_b=True)
    return tables.collision_probability(cosine)


def _directions(rows):
    """Rows of length 1, `[n, dim + 1]`.

    The last number is 1 for the zero vector: all its hashes are those of any other zero
    vector, and it is at right angles to the rest.
    """
    norms = tf.norm(rows, axis=1, keepdims=True)
    return tf.concat([tf.math.divide_no_nan(rows, norms), tf.cast(norms == 0, tf.float32)], 1)
