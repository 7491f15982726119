"""Calls that once killed the process, did not end, or returned a wrong result.

`python -m tests.fuzz.former_failures` makes each call in its own process and prints the
outcomes as JSON.
"""

import faulthandler
import json
import os

from tf_largeout.papers.lsh import hash_ops, lsh_ops

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import numpy as np
import tensorflow as tf

from tests.fuzz.calls import MIB, address_space, limited_memory
from tests.fuzz.watched import Process
from tf_largeout import ops
from tf_largeout.ops import inverted_file_ops
from tf_largeout.ops.library import gen_ops

SEED = (1, 2)
PATIENCE = 60

INVALID, SHORT = "InvalidArgumentError", "ResourceExhaustedError"
# Name -> function, and the names of the errors that it may raise.
CALLS = {}


def must_raise(*errors):
    """Registers a call that must raise one of the errors, or return if there are none."""

    def registered(function):
        CALLS[function.__name__] = function, errors
        return function

    return registered


@must_raise(INVALID)
def handles_of_two_variables():
    variable = tf.Variable(tf.ones([5, 3]))
    handles = tf.stack([variable.handle, variable.handle])
    return ops.class_top_k(tf.ones([2, 3]), handles, None, 1)


@must_raise(INVALID)
def handles_of_two_slots():
    variable = tf.Variable(tf.ones([5, 3]))
    handles = tf.stack([variable.handle, variable.handle])
    return ops.row_adagrad(variable, handles, tf.ones([2, 3]), [0, 1], 0.1)


@must_raise(INVALID)
def handles_of_two_tables():
    offsets, ids = _tables()
    handles = tf.stack([offsets.handle, offsets.handle])
    return lsh_ops.lsh_pool(handles, ids, [[0]], SEED, 3)


@must_raise(INVALID, SHORT)
def samples_whose_product_with_the_batch_overflows():
    offsets, ids = _tables()
    labels = tf.zeros([3, 1], tf.int64)
    return lsh_ops.lsh_query(offsets, ids, [[0]] * 3, labels, SEED, "walk", 2**62, 5)


@must_raise(INVALID, SHORT)
def places_whose_product_with_the_batch_overflows():
    state = _inverted_file(5, 3)
    return ops.inverted_file_search(tf.ones([3, 3]), state, 1, 2**62)


@must_raise(INVALID, SHORT)
def more_buckets_than_an_integer_counts():
    return ops.pivotal_table(tf.ones([5], tf.float64), 2, 2**63 - 1)


@must_raise(INVALID)
def embeddings_that_are_their_own_means():
    embeddings = tf.Variable(tf.ones([64, 16]))
    state = _inverted_file(64, 16)
    state[0], state[1] = embeddings, tf.Variable(tf.zeros([64]))
    state[2] = tf.Variable(tf.zeros([65], tf.uint32))
    return ops.inverted_file_fit(embeddings, None, state)


@must_raise(SHORT)
def rows_to_merge_with_little_memory():
    values = tf.zeros([1_000_000, 1])
    ids = tf.constant(np.random.default_rng(1).integers(0, 2**40, 1_000_000))
    with limited_memory(address_space() + 16 * MIB):
        return ops.merge_rows(values, ids)


@must_raise(SHORT)
def distinct_samples_with_little_memory():
    with limited_memory(address_space() + 96 * MIB):
        return ops.uniform_sample([[1]], SEED, 2**31 - 1, 2**22, True)


@must_raise(SHORT)
def gradients_with_little_memory():
    features, embeddings = tf.zeros([800_000, 2]), tf.Variable(tf.zeros([3, 2]))
    log_partition, weights = tf.zeros([800_000]), tf.zeros([800_000])
    no_labels = tf.zeros([800_000, 0], tf.int64), tf.zeros([800_000, 0])
    with limited_memory(address_space() + 24 * MIB):
        return gen_ops.largeout_class_softmax_gradient(
            features, embeddings.handle, [], log_partition, weights, *no_labels
        )


@must_raise(SHORT)
def hashes_of_long_vectors_with_little_memory():
    with limited_memory(address_space() + 256 * MIB):
        return hash_ops.hash_functions("wta", 742_950_406, 1, 2, SEED)


@must_raise(INVALID)
def embeddings_that_are_the_ids_of_their_lists():
    embeddings, state = tf.Variable(tf.ones([65, 2])), _inverted_file(65, 2)
    state[3] = embeddings
    return ops.inverted_file_upkeep(embeddings, None, state, interval=1, rows_a_step=31)


@must_raise()
def more_lookups_than_there_are_entries():
    """The op must allocate memory for the entries, not for `max_lookups`."""
    offsets, ids = _tables()
    labels = tf.zeros([1, 1], tf.int64)
    with limited_memory(address_space() + 256 * MIB):
        return lsh_ops.lsh_query(offsets, ids, [[0]], labels, SEED, "frequent", 3, 10**9)


@must_raise()
def gradients_of_a_row_whose_candidates_are_all_hits():
    candidates = tf.constant([3, 3], tf.int64)
    arguments = (tf.ones([1, 2]), tf.zeros([2]), tf.constant([[3]], tf.int64), candidates)
    log_partition = ops.candidate_log_partition(*arguments)
    gradients = gen_ops.largeout_candidate_log_partition_grad(*arguments, log_partition, [1.0])
    assert not np.any(gradients[0]) and not np.any(gradients[1]), gradients
    return gradients


@must_raise()
def rows_of_bfloat16_without_columns():
    embeddings = tf.Variable(tf.zeros([3, 0], tf.bfloat16))
    ids = tf.constant([[1]], tf.int64)
    return ops.row_dots_and_rows(tf.zeros([1, 0]), embeddings, None, ids, ids[0])


def _tables():
    """Returns hash tables with four classes, all in the first of two buckets."""
    offsets = tf.Variable(tf.constant([[0, 4, 4]], tf.uint32))
    return offsets, tf.Variable(tf.constant([[0, 1, 2, 3]], tf.uint32))


def _inverted_file(num_classes, dim):
    """Returns an inverted file of two lists that has not been fitted."""
    codes, scales = inverted_file_ops.packed_shapes(num_classes, dim)
    shapes = ([2, dim], [2], [3], [num_classes], codes, scales, [2])
    types = (tf.float32, tf.float32, tf.uint32, tf.uint32, tf.uint8, tf.float32, tf.int64)
    return [tf.Variable(tf.zeros(shape, one)) for shape, one in zip(shapes, types, strict=True)]


def _outcomes():
    """Returns each outcome: the name of an error, "returned", or how the process ended."""
    processes = {
        name: Process(lambda f=call: _print_outcome(f)) for name, (call, _) in CALLS.items()
    }
    return {name: _outcome(process) for name, process in processes.items()}


def _print_outcome(call):
    faulthandler.enable()
    # The first op starts TensorFlow's threads, which aborts the process if memory is short.
    ops.uniform_sample([[1]], SEED, 10, 2, True)
    try:
        call()
        print("returned")
    except tf.errors.OpError as error:
        print(type(error).__name__)


def _outcome(process):
    if not process.wait(PATIENCE):
        process.kill()
        return f"not finished after {PATIENCE} s"
    lines = process.output()
    return lines[-1] if process.status == 0 else f"exit status {process.status}: {lines[:8]}"


if __name__ == "__main__":
    print(json.dumps(_outcomes()))
