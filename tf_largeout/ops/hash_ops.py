"""Locality-sensitive hashes: close vectors have equal values more often.

Kinds, and with which probability a single value of two vectors agrees:

* `"simhash"`: the sign of a random projection (Charikar 2002). `1 - theta / pi`, where
  theta is the angle between the vectors.
* `"wta"`: which one of `bin_size = k` random coordinates is the highest (Yagnik et al. 2011,
  "The power of comparative reasoning"). `sum_c choose(R_c, k - 1) / choose(dim, k)`, where
  `R_c` is the number of coordinates below coordinate c in both vectors.
* `"dwta"`: the same for sparse vectors: zeros take no part, and a value that finds no
  coordinate borrows another one (Chen and Shrivastava 2018, "Densified winner take all (WTA)
  hashing for sparse datasets").

A table joins `num_hashes = K` values; there are `num_tables = L`. With probability p for one
value, two vectors share a bucket in some table with probability `1 - (1 - p^K)^L`. Hashes are
the same on any processor and number of threads. `vectors` are `[n, dim]` of any float type;
they are hashed as float32. The zero vector has values 0; rows with NaN have values too.
"""

import tensorflow as tf

from tf_largeout.ops.library import gen_ops


def hash_functions(
    kind: str, dim: int, num_hashes: int, num_tables: int, seed: tf.Tensor, bin_size: int = 8
) -> tf.Tensor:
    """Draws the functions of a family of hashes, which the other functions here take.

    Args:
        kind: `"simhash"`, `"wta"` or `"dwta"`.
        dim: Width of the vectors.
        num_hashes: Values per table.
        num_tables: Number of tables.
        seed: int64 `[2]`; the same seed gives the same functions.
        bin_size: For WTA and DWTA, a power of two from 2 to 256.

    Returns:
        int32 vector, to be kept as a weight. Its length depends on the arguments only.
    """
    return gen_ops.largeout_hash_functions(
        seed,
        kind=kind,
        dim=dim,
        num_hashes=num_hashes,
        num_tables=num_tables,
        bin_size=bin_size,
    )


def lsh_hash(
    vectors: tf.Tensor,
    functions: tf.Tensor,
    kind: str,
    num_hashes: int,
    num_tables: int,
    bits: int,
    bin_size: int = 8,
) -> tf.Tensor:
    """The bucket of each vector in each table.

    The K values are written one after the other; where they take more than `bits` bits they
    are mixed, such that as many lists of values go to each bucket.

    Args:
        vectors: float `[n, dim]`.
        functions: int32, from `hash_functions`.
        kind: `"simhash"`, `"wta"` or `"dwta"`, as given to `hash_functions`.
        num_hashes: Values per table.
        num_tables: Number of tables.
        bits: Bits of a bucket's number, at most 30.
        bin_size: For WTA and DWTA, coordinates that a value compares, as given to
            `hash_functions`.

    Returns:
        int32 `[n, num_tables]` in `[0, 2^bits)`.
    """
    return gen_ops.largeout_lsh_hash(
        tf.cast(vectors, tf.float32),
        functions,
        kind=kind,
        num_hashes=num_hashes,
        num_tables=num_tables,
        bits=bits,
        bin_size=bin_size,
    )


def simhash(
    vectors: tf.Tensor | tf.SparseTensor, functions: tf.Tensor, num_hashes: int, num_tables: int
) -> tf.Tensor:
    """Single values of SimHash, in O(dim log dim) per vector, for sparse ones too.

    Args:
        vectors: float `[n, dim]`, or a `tf.SparseTensor` of that shape with a known width.
        functions: int32, from `hash_functions`.
        num_hashes: Values per table.
        num_tables: Number of tables.

    Returns:
        int32 `[n, num_tables, num_hashes]`: 1 where the projection is positive, else 0.

    Raises:
        ValueError: If a sparse tensor has no known width.
        tf.errors.InvalidArgumentError: If the rows of a sparse tensor are not in order.
    """
    return _hash_values(vectors, functions, "simhash", num_hashes, num_tables, 8)


def wta_hash(
    vectors: tf.Tensor | tf.SparseTensor,
    functions: tf.Tensor,
    num_hashes: int,
    num_tables: int,
    bin_size: int = 8,
) -> tf.Tensor:
    """Single values of WTA: which of `bin_size` random coordinates is the highest.

    Args:
        vectors: float `[n, dim]`, or a `tf.SparseTensor` of that shape with a known width.
        functions: int32, from `hash_functions`.
        num_hashes: Values per table.
        num_tables: Number of tables.
        bin_size: Coordinates that a value compares, as given to `hash_functions`.

    Returns:
        int32 `[n, num_tables, num_hashes]` in `[0, bin_size)`; of equal coordinates the first.

    Raises:
        ValueError: If a sparse tensor has no known width.
        tf.errors.InvalidArgumentError: If the rows of a sparse tensor are not in order.
    """
    return _hash_values(vectors, functions, "wta", num_hashes, num_tables, bin_size)


def dwta_hash(
    vectors: tf.Tensor | tf.SparseTensor,
    functions: tf.Tensor,
    num_hashes: int,
    num_tables: int,
    bin_size: int = 8,
) -> tf.Tensor:
    """Single values of DWTA: WTA of the coordinates that are not 0.

    Args:
        vectors: float `[n, dim]`, or a `tf.SparseTensor` of that shape with a known width.
        functions: int32, from `hash_functions`.
        num_hashes: Values per table.
        num_tables: Number of tables.
        bin_size: Coordinates that a value compares, as given to `hash_functions`.

    Returns:
        int32 `[n, num_tables, num_hashes]` in `[0, bin_size)`; of equal coordinates the first.

    Raises:
        ValueError: If a sparse tensor has no known width.
        tf.errors.InvalidArgumentError: If the rows of a sparse tensor are not in order.
    """
    return _hash_values(vectors, functions, "dwta", num_hashes, num_tables, bin_size)


def _hash_values(
    vectors: tf.Tensor | tf.SparseTensor,
    functions: tf.Tensor,
    kind: str,
    num_hashes: int,
    num_tables: int,
    bin_size: int,
) -> tf.Tensor:
    options = {
        "kind": kind,
        "num_hashes": num_hashes,
        "num_tables": num_tables,
        "bin_size": bin_size,
    }
    if not isinstance(vectors, tf.SparseTensor):
        vectors = tf.cast(vectors, tf.float32)
        return gen_ops.largeout_hash_values(vectors, functions, **options)
    dim = vectors.shape[1]
    if dim is None:
        raise ValueError(
            "A sparse tensor of vectors must have a known width, received "
            f"shape={vectors.shape}. Set its dense_shape to a constant."
        )
    values = tf.cast(vectors.values, tf.float32)
    return gen_ops.largeout_sparse_hash_values(
        vectors.indices[:, 1], values, _row_splits(vectors), functions, dim=dim, **options
    )


def _row_splits(vectors: tf.SparseTensor) -> tf.Tensor:
    # Not by tf.RaggedTensor.from_value_rowids: its bincount ends the process where it finds no
    # memory for a count of each row.
    rows = vectors.indices[:, 0]
    in_order = tf.debugging.Assert(
        tf.reduce_all(rows[1:] >= rows[:-1]),
        ["The rows of a sparse tensor of vectors must be in order; use tf.sparse.reorder."],
    )
    with tf.control_dependencies([in_order] if in_order is not None else []):
        starts = tf.range(vectors.dense_shape[0] + 1)
    return tf.searchsorted(rows, starts, out_type=tf.int64)
