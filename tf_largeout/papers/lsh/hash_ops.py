"""Locality-sensitive hashes: similar vectors have equal hash values more often.

The kinds, and the probability p that two vectors have the same hash value:

* `"simhash"`: the sign of a random projection (Charikar 2002). `p = 1 - theta / pi`, where
  theta is the angle between the vectors.
* `"wta"`: the index of the highest of `bin_size = k` random coordinates (Yagnik et al. 2011,
  "The power of comparative reasoning"). `p = sum_c choose(R_c, k - 1) / choose(dim, k)`, where
  `R_c` is the number of coordinates below coordinate c in both vectors.
* `"dwta"`: WTA for sparse vectors. Zeros are ignored, and a hash value that sees zeros only
  borrows another value (Chen and Shrivastava 2018, "Densified winner take all (WTA) hashing
  for sparse datasets").

Each of `num_tables = L` tables combines `num_hashes = K` values into a bucket. Two vectors
share a bucket in at least one table with probability `1 - (1 - p^K)^L`. Hashes do not depend
on the processor or the number of threads. `vectors` are `[n, dim]` of any float type and are
cast to float32. All values of the zero vector are 0; vectors with NaN get valid values too.
"""

import tensorflow as tf

from tf_largeout import checks
from tf_largeout.ops.library import gen_ops


def hash_functions(
    kind: str, dim: int, num_hashes: int, num_tables: int, seed: tf.Tensor, bin_size: int = 8
) -> tf.Tensor:
    """Draws random hash functions, for `lsh_hash`, `simhash`, `wta_hash` and `dwta_hash`.

    Args:
        kind: `"simhash"`, `"wta"` or `"dwta"`.
        dim: Width of the vectors.
        num_hashes: Hash values per table.
        num_tables: Number of tables.
        seed: int64 `[2]`; the same seed gives the same functions.
        bin_size: For WTA and DWTA, the number of coordinates that a hash value compares: a
            power of two from 2 to 256. Defaults to 8.

    Returns:
        int32 vector, whose length depends on the other arguments only. Store it as a weight.
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
    """Computes the bucket of each vector in each table.

    The `num_hashes` values are concatenated. If they take more than `bits` bits, they are mixed
    such that all buckets represent the same number of combinations.

    Args:
        vectors: float `[n, dim]`.
        functions: int32, from `hash_functions`.
        kind: `"simhash"`, `"wta"` or `"dwta"`, as passed to `hash_functions`.
        num_hashes: Hash values per table.
        num_tables: Number of tables.
        bits: Number of bits of a bucket number, at most 30.
        bin_size: For WTA and DWTA, as passed to `hash_functions`. Defaults to 8.

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
    """Computes SimHash values in O(dim log dim) per vector, dense or sparse.

    Args:
        vectors: float `[n, dim]`, or a `tf.SparseTensor` of that shape with a known width.
        functions: int32, from `hash_functions`.
        num_hashes: Hash values per table.
        num_tables: Number of tables.

    Returns:
        int32 `[n, num_tables, num_hashes]`: 1 where the projection is positive, else 0.

    Raises:
        ValueError: If the static width of a sparse tensor is unknown.
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
    """Computes WTA values: the index of the highest of `bin_size` random coordinates.

    Args:
        vectors: float `[n, dim]`, or a `tf.SparseTensor` of that shape with a known width.
        functions: int32, from `hash_functions`.
        num_hashes: Hash values per table.
        num_tables: Number of tables.
        bin_size: As passed to `hash_functions`. Defaults to 8.

    Returns:
        int32 `[n, num_tables, num_hashes]` in `[0, bin_size)`. In a tie the first coordinate
        wins.

    Raises:
        ValueError: If the static width of a sparse tensor is unknown.
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
    """Computes DWTA values: WTA of the coordinates that are not 0.

    Args:
        vectors: float `[n, dim]`, or a `tf.SparseTensor` of that shape with a known width.
        functions: int32, from `hash_functions`.
        num_hashes: Hash values per table.
        num_tables: Number of tables.
        bin_size: As passed to `hash_functions`. Defaults to 8.

    Returns:
        int32 `[n, num_tables, num_hashes]` in `[0, bin_size)`. In a tie the first coordinate
        wins.

    Raises:
        ValueError: If the static width of a sparse tensor is unknown.
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
            "A sparse tensor of vectors must have a known static width. Received: "
            f"shape={vectors.shape}. Set its `dense_shape` to a constant."
        )
    values = tf.cast(vectors.values, tf.float32)
    return gen_ops.largeout_sparse_hash_values(
        vectors.indices[:, 1], values, _row_splits(vectors), functions, dim=dim, **options
    )


def _row_splits(vectors: tf.SparseTensor) -> tf.Tensor:
    # tf.RaggedTensor.from_value_rowids would abort the process if its bincount cannot allocate
    # one count per row.
    rows = vectors.indices[:, 0]
    in_order = checks.require(
        tf.reduce_all(rows[1:] >= rows[:-1]),
        ["The rows of a sparse tensor of vectors must be in order. Call tf.sparse.reorder."],
    )
    starts = tf.range(vectors.dense_shape[0] + 1)
    return tf.searchsorted(checks.passed([in_order], rows), starts, out_type=tf.int64)
