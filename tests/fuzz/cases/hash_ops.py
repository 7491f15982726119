"""Random calls of the hashes."""

import dataclasses

import numpy as np
import tensorflow as tf

from tests.fuzz import checks
from tests.fuzz.draws import EXTREME_INTEGERS, Call
from tf_largeout.ops.library import gen_ops
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

    @property
    def end(self):
        return 2 if self.kind == "simhash" else self.bin_size

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


def simhash(draws):
    return _values_call(draws, hash_ops.simhash, family(draws, "simhash"))


def wta_hash(draws):
    return _values_call(draws, hash_ops.wta_hash, family(draws, "wta"))


def dwta_hash(draws):
    return _values_call(draws, hash_ops.dwta_hash, family(draws, "dwta"))


def largeout_hash_values(draws):
    one = family(draws)
    vectors, options = draws.floats(one.rows(draws), one.dim), _options(draws, one)
    return Call(
        gen_ops.largeout_hash_values,
        (vectors, one.functions),
        options,
        _are_values(one, options, lambda: vectors.shape[0]),
    )


def largeout_sparse_hash_values(draws):
    one = family(draws)
    num_rows, num_ids = draws.rows(1), draws.size()
    splits = np.sort(draws.random.integers(0, num_ids + 1, num_rows + 1))
    splits[0], splits[-1] = 0, num_ids
    splits = tf.constant(splits, tf.int64)
    if draws.odd():
        splits = draws.ids((num_rows + 1,), num_ids)
    arguments = (draws.ids((num_ids,), one.dim, 0), draws.floats(num_ids), splits)
    options = _options(draws, one) | {"dim": draws.attribute(one.dim)}
    return Call(
        gen_ops.largeout_sparse_hash_values,
        (*arguments, one.functions),
        options,
        _are_values(one, options, lambda: splits.shape[0] - 1),
    )


def _values_call(draws, function, one):
    num_rows = one.rows(draws)
    vectors = draws.floats(num_rows, one.dim)
    if draws.chance(0.4):
        vectors = _sparse(draws, num_rows, one.dim)
    num_hashes, num_tables, bin_size = _attributes(draws, one)
    options = {"num_hashes": num_hashes, "num_tables": num_tables}
    if one.kind != "simhash":
        options["bin_size"] = bin_size
    check = _are_values(one, options, lambda: vectors.shape[0])
    return Call(function, (vectors, one.functions), options, check)


def _are_values(one, options, num_rows):
    def check(values):
        checks.has_shape(values, num_rows(), options["num_tables"], options["num_hashes"])
        checks.within(values, 0, options.get("bin_size", 2) if one.kind != "simhash" else 2)

    return check


def _options(draws, one):
    num_hashes, num_tables, bin_size = _attributes(draws, one)
    return {
        "kind": one.kind,
        "num_hashes": num_hashes,
        "num_tables": num_tables,
        "bin_size": bin_size,
    }


def _attributes(draws, one):
    return [draws.attribute(value) for value in (one.num_hashes, one.num_tables, one.bin_size)]


def _sparse(draws, num_rows, dim):
    """Returns a sparse matrix, whose rows are usually in order."""
    number = draws.size() if num_rows else 0
    rows = np.sort(draws.random.integers(0, max(num_rows, 1), number))
    columns = draws.random.integers(0, dim, number)
    places = tf.constant(np.stack([rows, columns], axis=1), tf.int64)
    if draws.odd():
        places = draws.ids((number, 2), max(num_rows, dim), -2)
    sizes = [draws.attribute(num_rows), draws.attribute(dim)]
    try:
        return tf.SparseTensor(places, draws.floats(number), sizes)
    except (ValueError, tf.errors.OpError):  # tf.SparseTensor checks shapes itself.
        return tf.SparseTensor(tf.zeros([0, 2], tf.int64), tf.zeros([0]), [num_rows, dim])


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
