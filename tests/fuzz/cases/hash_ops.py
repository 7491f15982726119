"""Random calls of the hashes."""

import dataclasses

import numpy as np
import tensorflow as tf

from tests.fuzz import checks
from tests.fuzz.draws import EXTREME_INTEGERS, Call
from tf_largeout.papers.lsh import hash_ops

SEED = (1, 2)


@dataclasses.dataclass
class Family:
    """A family of hashes and its functions, which may be damaged."""

    kind: str
    dim: int
    num_hashes: int
    num_tables: int
    bin_size: int
    functions: tf.Tensor

    def rows(self, draws, least=0):
        """Returns the number of vectors to hash, with about 2^25 numbers at most."""
        return draws.rows(least, most=max(2**13, min(2**18, 2**25 // self.dim)))


def family(draws, kind=None):
    """Returns a valid family whose functions are sometimes invalid."""
    kind = kind or draws.pick(("simhash", "wta", "dwta"))
    dim = draws.size(1) if draws.chance(0.98) else draws.pick((1000, 4096, 4097))
    num_hashes, num_tables = (int(draws.random.integers(1, end)) for end in (12, 9))
    bin_size = draws.pick((2, 4, 8, 16, 256))
    functions = hash_ops.hash_functions(kind, dim, num_hashes, num_tables, SEED, bin_size)
    functions = _damaged(draws, functions)
    return Family(kind, dim, num_hashes, num_tables, bin_size, functions)


def hash_functions(draws):
    kind = draws.pick(("simhash", "wta", "dwta", "wta"))
    dim, num_hashes, num_tables = (draws.attribute(draws.size(1)) for _ in range(3))
    bin_size = draws.attribute(draws.pick((2, 4, 8, 16, 256)))
    if 2**26 < num_hashes * num_tables * bin_size < 2**31:  # Valid, but takes minutes.
        num_hashes = 1
    arguments = (kind, dim, num_hashes, num_tables, draws.seed(), bin_size)

    def check(functions):
        assert functions.shape.rank == 1 and len(functions) > 0

    return Call(hash_ops.hash_functions, arguments, {}, check)


def lsh_hash(draws):
    one = family(draws)
    vectors = draws.floats(one.rows(draws), one.dim)
    bits = draws.attribute(draws.random.integers(1, 31))
    num_hashes, num_tables, bin_size = _attributes(draws, one)
    arguments = (vectors, one.functions, one.kind, num_hashes, num_tables, bits, bin_size)

    def check(codes):
        checks.has_shape(codes, vectors.shape[0], num_tables)
        checks.within(codes, 0, 2**bits)

    return Call(hash_ops.lsh_hash, arguments, {}, check)


def _attributes(draws, one):
    return [draws.attribute(value) for value in (one.num_hashes, one.num_tables, one.bin_size)]


def _damaged(draws, functions):
    """Returns the functions, some of them, or some invalid ones."""
    if not draws.odd():
        return functions
    if draws.chance(0.3):
        return functions[: draws.size()]
    values = functions.numpy()
    # Including the bit patterns of infinity and NaN.
    others = [one for one in EXTREME_INTEGERS if -(2**31) <= one < 2**31]
    others = draws.random.choice([*others, 0x7F800000, 0x7FC00000], size=values.shape)
    damaged = draws.random.random(values.shape) < draws.pick((0.01, 0.3))
    return tf.constant(np.where(damaged, others, values).astype(np.int32))
