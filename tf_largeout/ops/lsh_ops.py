"""Hash tables over the class embeddings: built, queried and looked over in place.

The tables are two uint32 variables, `offsets` `[num_tables, 2^bits + 1]` and `ids`
`[num_tables, num_classes]`: bucket c of table t holds `ids[t]` from `offsets[t, c]` to
`offsets[t, c + 1]`, rising. They are given as variables or handles and never copied. `codes`
int32 `[batch, n * num_tables]` are the buckets that a row asks for, from `lsh_hash`: the i-th
belongs to table `i % num_tables`, so a row may ask with n vectors; a negative one is none.
All are functions of their arguments, on any number of threads; `seed` is int64 `[2]`. On a GPU
codes, labels and ids that are out of range are no errors: they are passed over.
"""

import tensorflow as tf

from tf_largeout.ops.handles import handle_of
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
    """Hashes all rows of the embeddings and sorts them into the tables, in place.

    O(num_classes · num_tables) time; memory of one and a half tables beyond the variables.
    Whoever reads the tables sees the old ones or the new ones, whole.

    Args:
        embeddings: float32 variable `[num_classes, dim]`.
        functions: int32, from `hash_functions`.
        offsets: uint32 variable `[num_tables, 2^bits + 1]`; all of it is written.
        ids: uint32 variable `[num_tables, num_classes]`; all of it is written.
        kind: "simhash", "wta" or "dwta".
        num_hashes: hash values per table.
        num_tables: number of tables.
        bits: of a bucket's number.
        bin_size: for WTA and DWTA, numbers that a value compares.

    Returns:
        The operation (None when executing eagerly).
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
    """Classes that share buckets with each row: distinct, and no labels of it.

    Time and memory are O(num_sampled + max_lookups + number of codes) per row, whatever the
    number of classes, also where all of them are in one bucket.

    Args:
        offsets: uint32 variable `[num_tables, 2^bits + 1]`.
        ids: uint32 variable `[num_tables, num_classes]`.
        codes: int32 `[batch, n * num_tables]`.
        labels: int64 `[batch, num_labels]`, padded with -1.
        seed: int64 `[2]`.
        select: "walk" takes what it meets first, going through the row's buckets from a random
            one and a random place on (Daghaghi et al. 2021); "frequent" takes what stands in
            most of them, by falling count, of equals at the end the lower ids
            (Vijayanarasimhan et al. 2015).
        num_sampled: Number of classes per row.
        max_lookups: Entries of the tables that a row looks at, at most.
        fill: Whether a row that finds too few classes gets uniform draws; else it ends in -1,
            and all rows draw the same numbers.

    Returns:
        `(sampled, num_filled)`: int64 `[batch, num_sampled]`, ending in -1 also where too few
        classes are no labels; int32 `[batch]`, the number of uniform draws.
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
    """Draws from all entries in the buckets of a batch, each with the same probability.

    Args:
        offsets: uint32 variable `[num_tables, 2^bits + 1]`.
        ids: uint32 variable `[num_tables, num_classes]`.
        codes: int32 `[batch, n * num_tables]`.
        seed: int64 `[2]`.
        num_sampled: Number of draws.

    Returns:
        `(sampled, num_entries)`: int64 `[num_sampled]`, classes may repeat, -1 where there are
        no entries; int64 scalar E. A class with M of the E entries comes `num_sampled · M / E`
        times in the mean.
    """
    return gen_ops.largeout_lsh_pool(
        handle_of(offsets), handle_of(ids), codes, seed, num_sampled=num_sampled
    )


def union_of_lists(
    lists: tf.Tensor, seed: tf.Tensor, num_classes: int, num_sampled: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """The first class of each list, then the second of each, until there are enough.

    Args:
        lists: int64 `[batch, width]`, best first, padded with -1.
        seed: int64 `[2]`.
        num_classes: Number of classes there are.
        num_sampled: Number of distinct classes wanted.

    Returns:
        `(sampled, num_filled)`: int64 `[num_sampled]`, filled up by uniform draws and, where
        there are fewer classes, by -1; int64 scalar, the number of uniform draws.
    """
    return gen_ops.largeout_union_of_lists(
        lists, seed, num_classes=num_classes, num_sampled=num_sampled
    )


def lsh_fresh_share(
    offsets: VariableOrHandle, ids: VariableOrHandle, codes: tf.Tensor, row_ids: tf.Tensor
) -> tf.Tensor:
    """The share of entries that stand in the bucket that their row has now.

    Args:
        offsets: uint32 variable `[num_tables, 2^bits + 1]`.
        ids: uint32 variable `[num_tables, num_classes]`.
        codes: int32 `[num_rows, num_tables]`, of some rows as they are now.
        row_ids: int64 `[num_rows]`, their classes.

    Returns:
        float32 scalar in `[0, 1]`.
    """
    return gen_ops.largeout_lsh_fresh_share(handle_of(offsets), handle_of(ids), codes, row_ids)


tf.no_gradient("LargeoutLshQuery")
tf.no_gradient("LargeoutLshPool")
tf.no_gradient("LargeoutUnionOfLists")
tf.no_gradient("LargeoutLshFreshShare")
