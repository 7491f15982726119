"""Arguments that once crashed or hung the process, or gave wrong results, raise an error."""

import numpy as np
import pytest
import tensorflow as tf

from tests.slow import slow_but
from tf_largeout import ops
from tf_largeout.ops.library import gen_ops
from tf_largeout.papers.lsh import hash_ops, lsh_ops

SEED = tf.constant([1, 2], tf.int64)
HUGE = 2**62


def invalid(match):
    return pytest.raises(tf.errors.InvalidArgumentError, match=match)


def tables():
    return tf.Variable(np.array([[0, 2, 4]], np.uint32)), tf.Variable(
        np.array([[0, 1, 2, 3]], np.uint32)
    )


def inverted_file(num_classes=64, dim=16, num_lists=64):
    codes, scales = ops.inverted_file_ops.packed_shapes(num_classes, dim)
    return [
        tf.Variable(tf.zeros([num_lists, dim])),
        tf.Variable(tf.zeros([num_lists])),
        tf.Variable(tf.zeros([num_lists + 1], tf.uint32)),
        tf.Variable(tf.zeros([num_classes], tf.uint32)),
        tf.Variable(tf.zeros(codes, tf.uint8)),
        tf.Variable(tf.zeros(scales)),
        tf.Variable(tf.constant([0, -1], tf.int64)),
    ]


def sample_of_tables(op, slots, num_sampled):
    return op(tf.constant([[1]], tf.int64), SEED, *slots, num_sampled)


COUNTS = {
    "lsh_query num_sampled": lambda n: lsh_ops.lsh_query(
        *tables(), tf.zeros([3, 1], tf.int32), tf.zeros([3, 1], tf.int64), SEED, "walk", n, 5
    ),
    "lsh_pool num_sampled": lambda n: lsh_ops.lsh_pool(*tables(), [[0]], SEED, n),
    "union_of_lists num_sampled": lambda n: lsh_ops.union_of_lists([[0]], SEED, 9, n),
    "union_of_lists num_classes": lambda n: lsh_ops.union_of_lists([[0]], SEED, n, 9),
    "inverted_file_search k": lambda n: ops.inverted_file_search(
        tf.ones([3, 16]), inverted_file(), 1, n
    ),
    "inverted_file_search num_probes": lambda n: ops.inverted_file_search(
        tf.ones([3, 16]), inverted_file(), n, 1
    ),
    "inverted_file_upkeep interval": lambda n: ops.inverted_file_upkeep(
        tf.Variable(tf.ones([64, 16])), None, inverted_file(), n, 1
    ),
    "inverted_file_upkeep rows_a_step": lambda n: ops.inverted_file_upkeep(
        tf.Variable(tf.ones([64, 16])), None, inverted_file(), 1, n
    ),
    "pivotal_table num_buckets": lambda n: ops.pivotal_table(tf.ones([5], tf.float64), 2, n),
    "pivotal_table num_sampled": lambda n: ops.pivotal_table(tf.ones([5], tf.float64), n, 2),
    "alias_sample num_sampled": lambda n: sample_of_tables(
        ops.alias_sample, ops.alias_table(tf.ones([5], tf.float64)), n
    ),
    "pivotal_sample num_sampled": lambda n: sample_of_tables(
        ops.pivotal_sample, ops.pivotal_table(tf.ones([5], tf.float64), 2, 3), n
    ),
    "uniform_sample num_sampled": lambda n: ops.uniform_sample([[1]], SEED, 5, n, False),
    "hash_functions num_hashes": lambda n: hash_ops.hash_functions("wta", 1, n, 1, SEED),
    "hash_functions num_tables": lambda n: hash_ops.hash_functions("simhash", 9, 1, n, SEED),
    "hash_functions dim": lambda n: hash_ops.hash_functions("dwta", n, 1, 1, SEED),
}


@pytest.mark.parametrize("count", [2**31, HUGE, 2**63 - 1])
@pytest.mark.parametrize("name", COUNTS)
def test_counts_whose_products_overflow_raise_an_error(name, count):
    with invalid(f"{name.split()[-1]} must be at least 1 and less than 2\\^31, got {count}"):
        COUNTS[name](count)


@pytest.mark.parametrize(
    "name", slow_but(["lsh_query num_sampled", "hash_functions dim"], COUNTS)
)
def test_counts_whose_products_overflow_raise_an_error_in_graphs(name):
    @tf.function
    def called():
        outputs = COUNTS[name](2**63 - 1)
        return [x for x in tf.nest.flatten(outputs) if isinstance(x, tf.Tensor)]

    with pytest.raises((tf.errors.InvalidArgumentError, ValueError)):
        called()


def test_hash_functions_of_many_values_raise_an_error():
    with invalid("fewer than 2.31 numbers.*num_hashes=1073741824, num_tables=1073741824"):
        hash_ops.hash_functions("simhash", 100, 2**30, 2**30, SEED)


def test_more_lookups_than_entries_need_no_extra_memory():
    codes, labels = tf.zeros([3, 1], tf.int32), tf.zeros([3, 1], tf.int64)
    found, _ = lsh_ops.lsh_query(*tables(), codes, labels, SEED, "frequent", 2, HUGE, False)
    np.testing.assert_array_equal(found, [[1, -1]] * 3)


def test_more_samples_than_classes_are_padded_with_minus_one():
    codes, labels = tf.zeros([1, 1], tf.int32), tf.zeros([1, 1], tf.int64)
    found, _ = lsh_ops.lsh_query(*tables(), codes, labels, SEED, "walk", 1000, 5)
    assert sorted(found.numpy()[0, :3]) == [1, 2, 3]
    np.testing.assert_array_equal(found[0, 3:], -1)
    found, _ = lsh_ops.union_of_lists([[2]], SEED, 3, 1000)
    assert sorted(found.numpy()[:3]) == [0, 1, 2]
    np.testing.assert_array_equal(found[3:], -1)


@pytest.mark.parametrize("shape", [[2], [1], [1, 1]])
def test_several_handles_in_place_of_one_raise_an_error(shape):
    embeddings = tf.Variable(tf.ones([5, 3]))
    handles = tf.reshape(tf.stack([embeddings.handle] * 2)[: np.prod(shape)], shape)
    with invalid("input 1 must be the handle of one variable, a scalar"):
        gen_ops.largeout_class_top_k(tf.ones([2, 3]), handles, [], [], [], 1)


def test_scalar_features_raise_an_error():
    embeddings = tf.Variable(tf.ones([5, 3]))
    with invalid("features must be"):
        ops.class_statistics(1.0, embeddings, None, [[1]])
    with invalid("features must be"):
        ops.label_logits(1.0, embeddings, None, [[1]])
    with invalid("features must be"):
        ops.class_top_k(1.0, embeddings, None, 1)
    with invalid("features must be"):
        ops.row_dots(1.0, embeddings, [[1]])
    with invalid("features must be"):
        ops.inverted_file_search(1.0, inverted_file(), 1, 1)


@pytest.mark.parametrize("part", [0, 3, 5])
def test_fitting_an_inverted_file_to_its_own_variables_raises_an_error(part):
    state = inverted_file()
    embeddings = state[part] if part == 0 else tf.Variable(tf.ones([64, 16]))
    if part > 0:
        state[part] = state[part - 1]
    with invalid("are the same variable"):
        ops.inverted_file_fit(embeddings, None, state)


def test_the_bias_of_the_means_as_the_bias_of_the_classes_raises_an_error():
    state = inverted_file()
    with invalid("inputs 1 and 3 are the same variable"):
        ops.inverted_file_fit(tf.Variable(tf.ones([64, 16])), state[1], state)


def test_a_variable_as_its_own_slot_raises_an_error():
    variable, other = tf.Variable(tf.ones([5, 3])), tf.Variable(tf.ones([5, 3]))
    gradients = tf.ones([2, 3])
    with invalid("inputs 0 and 2 are the same variable"):
        ops.row_adam(variable, other, variable, gradients, [0, 1], 0.1)
    with invalid("inputs 0 and 1 are the same variable"):
        ops.row_adagrad(variable, variable, gradients, [0, 1], 0.1)
    with invalid("are the same variable"):
        ops.row_momentum(variable, variable, gradients, [0, 1], 0.1)
    np.testing.assert_array_equal(variable, np.ones([5, 3]))


def test_one_variable_as_two_parts_of_the_tables_raises_an_error():
    offsets, ids = tables()
    functions = hash_ops.hash_functions("simhash", 3, 1, 1, SEED)
    with invalid("inputs 0 and 2 are the same variable"):
        lsh_ops.lsh_build(offsets, functions, offsets, ids, "simhash", 1, 1, 1)


def test_empty_values_whose_size_overflows_raise_an_error():
    """Empty shapes whose number of elements overflows if there are ids."""
    variable = tf.Variable(tf.zeros([0, 2**40, 2**20]))
    with pytest.raises(tf.errors.OpError):
        ops.row_momentum(variable, None, tf.ones([8, 1, 1]), [0] * 8, 0.1)


@pytest.mark.parametrize(
    "schedule", [[-1, -1], [0, -2], [-(2**63), 2**63 - 1], [2**63 - 1, -1], [HUGE, 0]]
)
def test_invalid_schedules_raise_an_error(schedule):
    state, embeddings = inverted_file(), tf.Variable(tf.random.normal([64, 16]))
    state[6].assign(schedule)
    with invalid(r"schedule must be .* got \[" + ", ".join(map(str, schedule))):
        ops.inverted_file_upkeep(embeddings, None, state, 3, 2)
    with invalid("schedule must be"):
        ops.inverted_file_fit(embeddings, None, state)


def test_upkeep_late_in_a_schedule_of_large_steps_does_not_overflow():
    state, embeddings = inverted_file(), tf.Variable(tf.random.normal([64, 16]))
    ops.inverted_file_fit(embeddings, None, state)
    interval = 2**31 - 1
    state[6].assign([interval * 2**30, 0])
    ops.inverted_file_upkeep(embeddings, None, state, interval, interval)
    np.testing.assert_array_equal(state[6], [interval * 2**30 + 1, 0])
    np.testing.assert_array_equal(np.sort(state[3]), np.arange(64))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_top_k_of_features_that_are_not_finite_raises_an_error(bad):
    features = np.ones([4, 3], np.float32)
    features[2, 1] = bad
    with invalid(f"finite, but those of example 2 are not: one is -?{abs(bad)}"):
        ops.class_top_k(features, tf.Variable(tf.ones([5, 3])), None, 2)


@pytest.mark.parametrize("weight", [-2.0, 2.0])
@pytest.mark.parametrize("bias", [None, [0.0, 1, 2, 3, 4]])
def test_top_k_of_logits_that_overflow_raises_an_error(weight, bias):
    features = np.ones([4, 3], np.float32)
    features[1] = 3e38
    bias = None if bias is None else tf.Variable(bias)
    with invalid("overflow, but for the features of example 1 that of class 0 is -?inf"):
        ops.class_top_k(features, tf.Variable(tf.fill([5, 3], weight)), bias, 2)


def test_classes_with_nan_come_last():
    bias = tf.Variable([0.0, -np.inf, np.nan, 1, np.inf])
    scores, ids = ops.class_top_k(tf.ones([1, 3]), tf.Variable(tf.ones([5, 3])), bias, 5)
    np.testing.assert_array_equal(ids, [[4, 3, 0, 1, 2]])
    np.testing.assert_array_equal(scores, [[np.inf, 4, 3, -np.inf, np.nan]])
