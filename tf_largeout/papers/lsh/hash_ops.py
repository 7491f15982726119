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

from tf_largeout.ops.library import gen_ops


def hash_functions(
    kind: str, dim: int, num_hashes: int, num_tables: int, seed: tf.Tensor, bin_size: int = 8
) -> tf.Tensor:
    """Draws random hash functions for `lsh_hash`, an int32 vector to store as a weight.

    `kind` is "simhash", "wta" or "dwta". For the last two, `bin_size` is the number of
    coordinates that a hash value compares: a power of two from 2 to 256.
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
    """Computes the bucket of each vector in each table, int32 `[n, num_tables]` below `2^bits`.

    The `num_hashes` values are concatenated. If they take more than `bits` bits, at most 30,
    they are mixed such that all buckets represent the same number of combinations.
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
