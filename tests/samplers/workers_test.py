"""Samplers under a strategy of several workers, each in its own process."""

import pytest

from tests import two_workers

BUILDS_A_HEAD = """
import sys
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
from tf_largeout.layers import LargeOutput
with strategy.scope():
    try:
        LargeOutput(2_000, sampler=sys.argv[1]).build((None, 8))
        print("built")
    except ValueError as error:
        print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["uniform", "top_k", "kernel_tree"])
def test_supported_samplers_can_be_built_under_several_workers(sampler):
    assert two_workers.run(BUILDS_A_HEAD, sampler) == ["built", "built"]


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["lsh", "inverted_file"])
def test_the_error_of_searches_names_the_supported_strategy(sampler):
    for printed in two_workers.run(BUILDS_A_HEAD, sampler):
        assert "which CollectiveAllReduceStrategy cannot create" in printed
        assert "Use a static sampler" in printed
