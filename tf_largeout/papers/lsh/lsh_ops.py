"""Hash tables over the class embeddings.

The tables are two uint32 variables: `offsets` `[num_tables, 2^bits + 1]` and `ids`
`[num_tables, num_classes]`. Bucket c of table t holds the classes
`ids[t, offsets[t, c]:offsets[t, c + 1]]`, in ascending order. The ops take variables or
handles, and read and write them in place.

`codes` int32 `[batch, n * num_tables]` are the buckets that each example looks up, from
`lsh_hash`. The i-th code belongs to table `i % num_tables`, so an example may look up the
buckets of n vectors. Negative codes are ignored.

Results depend only on the arguments, not on the number of threads. `seed` is int64 `[2]`. On a
GPU, codes, labels and ids that are out of range are ignored instead of raising an error.
"""

import tensorflow as tf

from tf_largeout.ops.devices import handle_of
from tf_largeout.ops.library import gen_ops
from tf_largeout.types import VariableOrHandle


def lsh_build(
    embeddings: VariableOrHandle,
    functions: tf.Tensor,
    offsets: VariableOrHandle,
    ids: VariableOrHandle,
    kind: str,
    num_hashes: int,
    num_tables: int,
    bits: int,
    bin_size: int = 8,
) -> tf.Operation | None:
    """Hashes all class rows and writes the tables, in place.

    It needs the memory of one and a half tables in addition to the variables. Concurrent
    readers see either the old or the new tables.
    """
    return gen_ops.largeout_lsh_build(
        handle_of(embeddings),
        functions,
        handle_of(offsets),
        handle_of(ids),
        kind=kind,
        num_hashes=num_hashes,
        num_tables=num_tables,
        bits=bits,
        bin_size=bin_size,
    )


def lsh_query(
    offsets: VariableOrHandle,
    ids: VariableOrHandle,
    codes: tf.Tensor,
    labels: tf.Tensor,
    seed: tf.Tensor,
    select: str,
    num_sampled: int,
    max_lookups: int,
    fill: bool = True,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds distinct classes that share buckets with each example, except its labels.

    Time and memory are O(num_sampled + max_lookups + number of codes) per example. With
    `select` "walk", an example goes through its buckets, from a random bucket and position, and
    takes the first classes (Daghaghi et al. 2021). "frequent" takes the classes that occur in
    most of the buckets; lower ids win ties for the last places (Vijayanarasimhan et al. 2015).

    Returns:
        `(sampled, num_filled)`: int64 `[batch, num_sampled]`, completed by uniform draws if
        `fill`, or else padded with -1; and int32 `[batch]`, the number of uniform draws.
    """
    return gen_ops.largeout_lsh_query(
        handle_of(offsets),
        handle_of(ids),
        codes,
        labels,
        seed,
        select=select,
        num_sampled=num_sampled,
        max_lookups=max_lookups,
        fill=fill,
    )


def lsh_pool(
    offsets: VariableOrHandle,
    ids: VariableOrHandle,
    codes: tf.Tensor,
    seed: tf.Tensor,
    num_sampled: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws uniformly, with replacement, from all entries in the buckets of a batch.

    Returns:
        `(sampled, num_entries)`: int64 `[num_sampled]`, all -1 if there are no entries; and
        int64 scalar E. The expected count of a class with M of the E entries is
        `num_sampled · M / E`.
    """
    return gen_ops.largeout_lsh_pool(
        handle_of(offsets), handle_of(ids), codes, seed, num_sampled=num_sampled
    )


def union_of_lists(
    lists: tf.Tensor, seed: tf.Tensor, num_classes: int, num_sampled: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Takes the first class of each list `[batch, width]`, then the second of each, and so on.

    It drops repeats, and stops at `num_sampled` distinct classes. If the lists have too few, it
    adds uniform draws, whose number it also returns.
    """
    return gen_ops.largeout_union_of_lists(
        lists, seed, num_classes=num_classes, num_sampled=num_sampled
    )


def lsh_fresh_share(
    offsets: VariableOrHandle, ids: VariableOrHandle, codes: tf.Tensor, row_ids: tf.Tensor
) -> tf.Tensor:
    """Returns the share of entries that match the current codes of classes; 1 without classes.

    `codes`, int32 `[num_rows, num_tables]`, are those of the classes `row_ids`.
    """
    return gen_ops.largeout_lsh_fresh_share(handle_of(offsets), handle_of(ids), codes, row_ids)


tf.no_gradient("LargeoutLshQuery")
tf.no_gradient("LargeoutLshPool")
tf.no_gradient("LargeoutUnionOfLists")
tf.no_gradient("LargeoutLshFreshShare")
