"""Runs ops under a memory limit in a separate process, for out_of_memory_test.py.

Prints the result of each as JSON: the error, and whether the state is as expected.
"""

import json
import pathlib
import re
import resource

from tf_largeout.papers.lsh import hash_ops, lsh_ops

MIB = 2**20
SEED = [1, 2]


def run_limited(call, spare):
    """Returns type and text of the error of `call` with `spare` bytes of memory left."""
    import tensorflow as tf

    status = pathlib.Path("/proc/self/status").read_text()
    used = int(re.search(r"VmSize:\s+(\d+)", status).group(1)) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (used + spare, resource.RLIM_INFINITY))
    try:
        call()
    except tf.errors.OpError as error:
        return type(error).__name__, error.message
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    return "none", ""


def merge_rows():
    import tensorflow as tf

    from tf_largeout import ops

    values = tf.zeros([2_000_000, 1])
    ids = tf.random.uniform([2_000_000], 0, 2**40, tf.int64)
    return run_limited(lambda: ops.merge_rows(values, ids), 30 * MIB), True


def uniform_sample():
    import tensorflow as tf

    from tf_largeout import ops

    labels = tf.zeros([1, 1], tf.int64)
    return run_limited(
        lambda: ops.uniform_sample(labels, SEED, 2**30, 2**21, True), 60 * MIB
    ), True


def row_adam():
    """The variables do not change."""
    import tensorflow as tf

    from tf_largeout import ops

    variable, momentum, velocity = (tf.Variable(tf.ones([100, 1])) for _ in range(3))
    ids = tf.random.uniform([2_000_000], 0, 100, tf.int64)
    gradients = tf.ones([2_000_000, 1])
    error = run_limited(
        lambda: ops.row_adam(variable, momentum, velocity, gradients, ids, 0.1), 30 * MIB
    )
    sound = all(bool(tf.reduce_all(v == 1)) for v in (variable, momentum, velocity))
    ops.row_adam(
        variable, momentum, velocity, gradients[:3], ids[:3], 0.1
    )  # The locks are free.
    return error, sound


def lsh_query_in_threads():
    import numpy as np
    import tensorflow as tf

    size = 5_000_000
    offsets = tf.Variable(np.array([[0, size, size]], np.uint32))
    ids = tf.Variable(np.arange(size, dtype=np.uint32)[None])
    codes, labels = tf.zeros([4, 1], tf.int32), tf.zeros([4, 1], tf.int64)
    error = run_limited(
        lambda: lsh_ops.lsh_query(offsets, ids, codes, labels, SEED, "frequent", 5, 2**40),
        60 * MIB,
    )
    offsets.assign(offsets)  # The locks are free.
    return error, True


def lsh_build():
    """The buckets are empty and can be built again."""
    import tensorflow as tf

    rows = tf.Variable(tf.random.normal([8_000_000, 1]))
    offsets = tf.Variable(tf.zeros([1, 3], tf.uint32))
    ids = tf.Variable(tf.zeros([1, 8_000_000], tf.uint32))
    functions = hash_ops.hash_functions("simhash", 1, 1, 1, SEED)
    build = [rows, functions, offsets, ids, "simhash", 1, 1, 1]
    lsh_ops.lsh_build(*build)
    built = offsets.numpy().tolist()
    error = run_limited(lambda: lsh_ops.lsh_build(*build), 16 * MIB)
    empty = offsets.numpy().tolist() == [[0, 0, 0]]
    lsh_ops.lsh_build(*build)
    return error, empty and offsets.numpy().tolist() == built


def inverted_file_fit():
    """There are no lists, and nothing is found."""
    import tensorflow as tf

    from tf_largeout.ops import inverted_file_ops

    size = 8_000_000  # needs more than memory that was freed before
    rows = tf.Variable(tf.random.normal([size, 1]))
    codes, scales = inverted_file_ops.packed_shapes(size, 1)
    zeros = lambda shape, dtype: tf.Variable(tf.zeros(shape, dtype))  # noqa: E731
    state = [
        zeros([4, 1], tf.float32),
        zeros([4], tf.float32),
        zeros([5], tf.uint32),
        zeros([size], tf.uint32),
        zeros(codes, tf.uint8),
        zeros(scales, tf.float32),
        tf.Variable([0, -1], dtype=tf.int64),
    ]
    state[2].assign([0, size, size, size, size])
    error = run_limited(lambda: inverted_file_ops.inverted_file_fit(rows, None, state), 4 * MIB)
    _, found = inverted_file_ops.inverted_file_search([[1.0]], state, 2, 3)
    return error, found.numpy().tolist() == [[-1, -1, -1]]


CASES = {
    case.__name__: case
    for case in (
        merge_rows,
        uniform_sample,
        row_adam,
        lsh_query_in_threads,
        lsh_build,
        inverted_file_fit,
    )
}

if __name__ == "__main__":
    print(json.dumps({name: case() for name, case in CASES.items()}))
