import numpy as np
import pytest
import tensorflow as tf

from tests.reference import hashes as reference
from tf_largeout.papers.lsh import hash_ops

KINDS = ["simhash", "wta", "dwta"]
each_kind = pytest.mark.parametrize("kind", KINDS)
every_simd_level = pytest.mark.usefixtures("for_all_simd_levels")

SEED = np.array([12, 34])


def single_values(kind, vectors, functions, num_hashes, num_tables, bin_size=8):
    """The hash values `[n, num_tables, num_hashes]`: codes of tables with one hash each."""
    number = num_hashes * num_tables
    codes = hash_ops.lsh_hash(vectors, functions, kind, 1, number, bits=8, bin_size=bin_size)
    return codes.numpy().reshape([-1, num_hashes, num_tables]).swapaxes(1, 2)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def near_pair(dim, noise=0.6):
    x = normal(dim)
    return np.stack([x, x + np.float32(noise) * normal(dim, seed=1)])


def agreement(kind, pair, bin_size=8):
    pair = pair.astype(np.float64)
    if kind == "simhash":
        return reference.simhash_agreement(*pair)
    return reference.wta_agreement(*pair, bin_size)


def coordinates_of(functions, num_hashes, num_tables, bin_size):
    """[num_tables, num_hashes, bin_size]; the functions are [num_hashes, num_tables, ...]."""
    shape = (num_hashes, num_tables, bin_size)
    return functions.numpy().reshape(shape).swapaxes(0, 1)


@each_kind
@pytest.mark.parametrize("dim, bin_size", [(50, 8), (128, 16)])
def test_collision_probabilities_of_one_hash_equal_their_closed_forms(kind, dim, bin_size):
    pair = near_pair(dim)
    functions = hash_ops.hash_functions(kind, dim, 10, 3000, SEED, bin_size)
    values = single_values(kind, pair, functions, 10, 3000, bin_size)
    p = agreement(kind, pair, bin_size)
    equal = np.mean(values[0] == values[1])
    assert abs(equal - p) <= 5 * np.sqrt(p * (1 - p) / 30_000)
    assert 0.2 < p < 0.9


@each_kind
def test_tables_retrieve_with_the_documented_probability(kind):
    num_hashes, num_tables, draws = 5, 8, 400
    pair = near_pair(128, 1.2 if kind == "simhash" else 0.5)
    met = 0
    for draw in range(draws):
        functions = hash_ops.hash_functions(kind, 128, num_hashes, num_tables, [draw, 5])
        codes = hash_ops.lsh_hash(pair, functions, kind, num_hashes, num_tables, 20).numpy()
        met += np.any(codes[0] == codes[1])
    p = 1 - (1 - agreement(kind, pair) ** num_hashes) ** num_tables
    assert abs(met / draws - p) <= 5 * np.sqrt(p * (1 - p) / draws)
    assert 0.2 < p < 0.95


@every_simd_level
@pytest.mark.parametrize("bin_size", [2, 8, 16, 32])
def test_wta_is_the_position_of_its_largest_coordinate(bin_size):
    vectors = normal(37, 70)
    vectors[3, ::2] = np.nan
    functions = hash_ops.hash_functions("wta", 70, 3, 11, SEED, bin_size)
    values = single_values("wta", vectors, functions, 3, 11, bin_size)
    coordinates = coordinates_of(functions, 3, 11, bin_size)
    np.testing.assert_array_equal(values, reference.wta_values(vectors, coordinates))


@every_simd_level
def test_dwta_uses_nonzeros_and_borrows_from_another_bin_if_there_are_none():
    vectors = normal(37, 70) * (normal(37, 70, seed=2) > 1.2)
    functions = hash_ops.hash_functions("dwta", 70, 3, 11, SEED)
    values = single_values("dwta", vectors, functions, 3, 11)
    expected = reference.dwta_values(vectors, coordinates_of(functions, 3, 11, 8))
    empty = expected == -1
    assert 0.1 < empty.mean() < 0.9
    np.testing.assert_array_equal(values[~empty], expected[~empty])
    for row, holes, own in zip(values, empty, expected, strict=True):
        assert set(row[holes]) <= set(own[~holes])


@each_kind
def test_codes_are_equal_at_each_simd_level(kind, set_simd_level):
    vectors = normal(101, 90) * (normal(101, 90, seed=2) > 0)
    functions = hash_ops.hash_functions(kind, 90, 6, 20, SEED)
    codes = []
    for level in ("generic", "avx2", "avx512"):
        set_simd_level(level)
        codes.append(hash_ops.lsh_hash(vectors, functions, kind, 6, 20, 12).numpy())
    np.testing.assert_array_equal(codes[0], codes[1])
    np.testing.assert_array_equal(codes[0], codes[2])


# 3 values of 16 coordinates are the bands of Vijayanarasimhan et al. 2015.
@pytest.mark.parametrize("bin_size, bits", [(2, 3), (8, 9), (16, 12)])
def test_codes_concatenate_the_hash_values_if_they_fit_into_the_bits(bin_size, bits):
    vectors = normal(19, 30)
    functions = hash_ops.hash_functions("wta", 30, 3, 7, SEED, bin_size)
    coordinates = coordinates_of(functions, 3, 7, bin_size)
    codes = hash_ops.lsh_hash(vectors, functions, "wta", 3, 7, bits, bin_size)
    values = reference.wta_values(vectors, coordinates)
    np.testing.assert_array_equal(codes, reference.joined(values, bin_size))


@each_kind
@pytest.mark.parametrize("num_hashes", [12, 40])
def test_few_bits_spread_vectors_evenly(kind, num_hashes):
    functions = hash_ops.hash_functions(kind, 64, num_hashes, 3, SEED)
    codes = hash_ops.lsh_hash(normal(20_000, 64), functions, kind, num_hashes, 3, bits=5)
    for table in codes.numpy().T:
        sizes = np.bincount(table, minlength=32)
        assert len(sizes) == 32
        chi_square = np.sum((sizes - 625.0) ** 2 / 625)
        assert chi_square < 31 + 5 * np.sqrt(2 * 31)


@each_kind
def test_vectors_of_any_numbers_have_valid_buckets(kind):
    vectors = np.zeros([6, 40], np.float32)
    vectors[1] = np.nan
    vectors[2] = np.inf
    vectors[3] = -np.inf
    vectors[4] = 3e38
    vectors[5, 7] = np.nan
    functions = hash_ops.hash_functions(kind, 40, 4, 30, SEED)
    codes = hash_ops.lsh_hash(vectors, functions, kind, 4, 30, bits=7).numpy()
    assert codes.min() >= 0 and codes.max() < 128
    np.testing.assert_array_equal(codes[:2], 0)


@each_kind
def test_half_precision_vectors_hash_like_their_float32_values(kind):
    vectors = tf.cast(normal(8, 64), tf.bfloat16)
    functions = hash_ops.hash_functions(kind, 64, 4, 5, SEED)
    codes = hash_ops.lsh_hash(vectors, functions, kind, 4, 5, 10)
    wide = hash_ops.lsh_hash(tf.cast(vectors, tf.float32), functions, kind, 4, 5, 10)
    np.testing.assert_array_equal(codes, wide)


@each_kind
def test_an_empty_batch_has_no_hashes(kind):
    functions = hash_ops.hash_functions(kind, 8, 4, 5, SEED)
    empty = np.zeros([0, 8], np.float32)
    assert hash_ops.lsh_hash(empty, functions, kind, 4, 5, 10).shape == (0, 5)


@each_kind
def test_functions_depend_on_all_bits_of_the_seed(kind):
    seeds = [[0, 0], [1, 0], [0, 1], [1 << 32, 0], [0, 1 << 32], [0, 0]]
    drawn = [hash_ops.hash_functions(kind, 50, 2, 5, seed).numpy() for seed in seeds]
    assert len({tuple(functions) for functions in drawn}) == 5
    np.testing.assert_array_equal(drawn[0], drawn[-1])


@each_kind
def test_shapes_are_inferred_in_graphs(kind):
    length = hash_ops.hash_functions(kind, 50, 4, 7, SEED).shape[0]

    @tf.function(input_signature=[tf.TensorSpec([None, 50]), tf.TensorSpec([2], tf.int64)])
    def hashed(vectors, seed):
        functions = hash_ops.hash_functions(kind, 50, 4, 7, seed)
        assert functions.shape == [length]
        codes = hash_ops.lsh_hash(vectors, functions, kind, 4, 7, 9)
        assert codes.shape.as_list() == [None, 7]
        return codes

    assert hashed(normal(5, 50), SEED).shape == (5, 7)


@pytest.mark.parametrize(
    "changed",
    [{"bin_size": 6}, {"bin_size": 512}, {"dim": 2**40}, {"num_tables": 2**30}],
)
def test_wrong_arguments_raise_an_error(changed):
    arguments = {"kind": "wta", "dim": 16, "num_hashes": 4, "num_tables": 5, "bin_size": 8}
    [(name, value)] = changed.items()
    with pytest.raises(tf.errors.InvalidArgumentError, match=rf"{name}.*{value}"):
        hash_ops.hash_functions(**(arguments | changed), seed=SEED)


def test_too_many_bits_raise_an_error():
    functions = hash_ops.hash_functions("wta", 16, 4, 5, SEED)
    with pytest.raises(tf.errors.InvalidArgumentError, match="bits=31"):
        hash_ops.lsh_hash(normal(3, 16), functions, "wta", 4, 5, bits=31)


def test_functions_of_other_arguments_raise_an_error():
    functions = hash_ops.hash_functions("wta", 16, 4, 5, SEED)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"functions.*\[192\].*\[160\]"):
        hash_ops.lsh_hash(normal(3, 16), functions, "wta", 4, 6, bits=10)


@pytest.mark.parametrize("kind, bad", [("wta", 16), ("dwta", -1), ("simhash", 0x7FC00000)])
def test_damaged_functions_raise_an_error(kind, bad):
    functions = hash_ops.hash_functions(kind, 16, 4, 5, SEED).numpy()
    functions[7] = bad
    with pytest.raises(tf.errors.InvalidArgumentError, match="not valid functions of"):
        hash_ops.lsh_hash(normal(3, 16), functions, kind, 4, 5, bits=10)
