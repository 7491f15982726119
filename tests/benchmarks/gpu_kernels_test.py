"""The table of GPU kernels, and the list of waits; needs no GPU."""

import pathlib
import subprocess
import sys

import pytest
import tensorflow as tf

from benchmarks import gpu_kernels
from benchmarks.harness import graph_places

ROOT = pathlib.Path(__file__).resolve().parents[2]
STAND_IN = gpu_kernels.STAND_IN

needs_kernels = pytest.mark.skipif(
    not tf.test.is_built_with_cuda(), reason="this TensorFlow has no GPU kernels"
)


def waits_of(function, *arguments):
    """Returns the waits of a function, as pairs of the operations."""
    traced = tf.function(function, autograph=False).get_concrete_function(*arguments)
    waits = graph_places.analyse(traced, STAND_IN).waits
    return {(wait.producer, wait.consumer) for wait in waits}


@needs_kernels
def test_waits_are_found():
    with tf.device(STAND_IN):
        table = tf.Variable(tf.zeros([4, 2]))
    values = tf.TensorSpec([None], tf.float32)

    def check(x):
        return tf.debugging.check_numerics(x, "x")

    def branch(x):
        return tf.cond(x[0] > table[0, 0], lambda: x + 1, lambda: x)

    def host(x):
        largest = tf.reduce_max(x)
        with tf.device("CPU:0"):
            return largest + 1

    def no_wait(x):
        with tf.device("CPU:0"):
            ids = tf.argsort(x)
        return tf.gather(table, ids) + tf.cast(tf.shape(x)[0], tf.float32)

    assert waits_of(check, values) == {("CheckNumerics", "CheckNumerics")}
    assert waits_of(branch, values) == {("Greater", "StatelessIf")}
    assert waits_of(host, values) == {("Max", "AddV2")}
    assert waits_of(no_wait, values) == set()


@needs_kernels
@pytest.mark.slow
def test_all_kernels_exist_and_static_negatives_do_not_wait():
    command = [sys.executable, "-m", "benchmarks", "gpu_kernels"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
