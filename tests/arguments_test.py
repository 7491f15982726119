"""Checks of arguments: valid and invalid values, and messages."""

import re

import numpy as np
import pytest

from tf_largeout import layers, losses, optimizers, retrieval, samplers
from tf_largeout.arguments import boolean, int64_or_none, is_whole, real_number, whole_number


@pytest.mark.parametrize("value", [3, np.int32(3), np.uint8(3), np.int64(3)])
def test_whole_numbers_become_ints(value):
    assert is_whole(value)
    number = whole_number("k", value)
    assert type(number) is int and number == 3


@pytest.mark.parametrize("value", [True, np.bool_(True), 3.0, np.float32(3), "3", None, [3]])
def test_values_that_are_not_whole_numbers_raise_an_error(value):
    assert not is_whole(value)
    with pytest.raises(ValueError, match="`k` must be a positive integer. Received: k="):
        whole_number("k", value)


@pytest.mark.parametrize("least", [-2, 0, 1, 7])
def test_the_smallest_valid_number_is_accepted(least):
    assert whole_number("k", least, least) == least
    with pytest.raises(ValueError, match=f"Received: k={least - 1} "):
        whole_number("k", least - 1, least)


def test_none_is_accepted_only_with_or_none():
    assert whole_number("k", None, or_none=True) is None
    with pytest.raises(ValueError, match="a positive integer or None. Received: k=0 "):
        whole_number("k", 0, or_none=True)


def test_the_message_has_the_expected_and_the_received_value():
    expected = "`start` must be an integer of at least 0. Received: start='a' (of type str)."
    with pytest.raises(ValueError, match=re.escape(expected)):
        whole_number("start", "a", least=0)


@pytest.mark.parametrize("value", [3, 2.5, np.float32(2.5), np.int64(2)])
def test_real_numbers_become_floats(value):
    number = real_number("a", value, least=2)
    assert type(number) is float and number == value


@pytest.mark.parametrize("value", [1.9, np.nan, np.inf, True, "3", None, [3]])
def test_other_values_than_real_numbers_in_range_are_refused(value):
    with pytest.raises(ValueError, match="`a` must be a number of at least 2. Received: a="):
        real_number("a", value, least=2)


def test_the_bound_of_a_real_number_can_be_excluded():
    assert real_number("a", 0, least=0) == 0
    with pytest.raises(ValueError, match="`a` must be a number above 0. Received: a=0 "):
        real_number("a", 0, least=0, allow_least=False)


@pytest.mark.parametrize("seed", [None, 0, -5, np.int32(7), 2**63 - 1])
def test_seeds_are_numbers_of_64_bits_or_none(seed):
    assert int64_or_none("seed", seed) == seed


@pytest.mark.parametrize("seed", ["a", 1.5, 2**63, True])
def test_other_seeds_are_refused(seed):
    with pytest.raises(ValueError, match="`seed` must be an integer of 64 bits or None"):
        int64_or_none("seed", seed)


def test_the_largest_valid_number_is_accepted():
    assert whole_number("k", 9, most=9) == 9
    with pytest.raises(ValueError, match="positive integer and at most 9. Received: k=10 "):
        whole_number("k", 10, most=9)
    with pytest.raises(ValueError, match=f"at most {2**63 - 1}. Received: k={2**63} "):
        whole_number("k", 2**63)


@pytest.mark.parametrize("value", [True, np.bool_(False)])
def test_booleans_of_python_and_numpy_become_bools(value):
    assert boolean("absolute", value) is bool(value)


@pytest.mark.parametrize("value", ["name", 1, None])
def test_other_values_than_booleans_are_refused(value):
    expected = f"`absolute` must be True or False. Received: absolute={value!r} "
    with pytest.raises(ValueError, match=re.escape(expected)):
        boolean("absolute", value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: losses.SampledSoftmaxLoss("sum"),  # a reduction, as some losses have it first
        lambda: losses.NCELoss("sum"),
        lambda: losses.SampledSoftmaxLoss(remove_accidental_hits=1),
        lambda: samplers.UniformSampler(16, 42),  # a seed
        lambda: samplers.UnigramSampler(16, unique=0),
        lambda: samplers.KernelTreeSampler(16, shared=1),
        lambda: layers.LargeOutput(9, "uniform", "zeros"),  # an initializer
        lambda: layers.FactoredOutput(9, 0.1, "zeros"),
        lambda: layers.HierarchicalOutput(9, use_bias=None),
        lambda: optimizers.LazyAdam(decay_skipped=0.99),
        lambda: retrieval.BruteForceIndex(np.zeros([9, 2])),  # rows, which `build` takes
    ],
)
def test_values_for_other_arguments_are_not_accepted_as_booleans(make):
    with pytest.raises(
        ValueError, match="(?s)True(, False)? or (False|None). Received.*Pass other"
    ):
        make()
