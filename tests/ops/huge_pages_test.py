"""Large variables are moved to huge pages by the first update of their rows."""

import ctypes
import mmap
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tf_largeout.ops import row_ops

MIB = 2**20
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25
SMAPS = pathlib.Path("/proc/self/smaps_rollup")


def huge_mib():
    """MiB of this process that are in huge pages."""
    (line,) = (line for line in SMAPS.read_text().splitlines() if "AnonHugePages" in line)
    return int(line.split()[1]) // 1024


@pytest.fixture
def kernel_moves_pages():
    """Skips where the kernel does not move what is there to huge pages, or has none left."""
    if not SMAPS.exists() or not hasattr(mmap, "MADV_HUGEPAGE"):
        pytest.skip("no Linux with huge pages")
    memory = mmap.mmap(-1, 8 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[:] = bytes(len(memory))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    first = -(-address // (2 * MIB)) * 2 * MIB
    for advice in (MADV_HUGEPAGE, MADV_COLLAPSE):
        libc = ctypes.CDLL(None)
        if libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(4 * MIB), advice):
            pytest.skip("the kernel moves nothing to huge pages")


def test_the_first_update_moves_a_large_variable(kernel_moves_pages):
    values = np.random.default_rng(0).normal(size=(64 * MIB // 256, 64)).astype("f4")
    variable = tf.Variable(values)
    before = huge_mib()
    ids, gradient = [3, 0, 3], np.ones([3, 64], "f4")
    row_ops.row_momentum(variable, None, gradient, ids, 0.5)
    assert huge_mib() - before >= 48
    values[0] -= 0.5
    values[3] -= 1.0
    np.testing.assert_array_equal(variable, values)


def test_a_small_variable_stays_where_it_is(kernel_moves_pages):
    variable = tf.Variable(tf.ones([15 * MIB // 256, 64]))
    before = huge_mib()
    row_ops.row_momentum(variable, None, tf.ones([1, 64]), [0], 0.5)
    assert huge_mib() <= before
