"""Each feature with each use gives the result of the reference, or the expected error."""

import fnmatch
import itertools
import math
import os
import random

import pytest

from tests.pairs.features import FEATURES
from tests.pairs.unsupported import REFUSALS, refusal
from tests.pairs.uses import USES
from tests.slow import slow_but

PAIRS = list(itertools.product(FEATURES, USES))

# `make test` runs more than a tenth of the pairs: each feature with one or two uses, and each
# use with this share of the features. Uses that trace large graphs have smaller shares.
_SHARES = {use: 0.05 if "export" in use else 0.14 for use in USES} | {"replicas": 0.03}


def short_pairs(seed):
    """Returns the pairs of the short suite; each seed selects others."""
    names = random.Random(seed).sample(list(FEATURES), len(FEATURES))
    deck = itertools.cycle(names)
    return [
        (next(deck), use)
        for use, share in _SHARES.items()
        for _ in range(math.ceil(share * len(FEATURES)))
    ]


SHORT = short_pairs(os.environ.get("LARGEOUT_PAIRS_SEED", "0"))


@pytest.mark.parametrize(("feature", "use"), slow_but(SHORT, PAIRS))
def test_each_use_of_each_feature_is_right_or_the_expected_error(feature, use, tmp_path):
    refused = refusal(feature, use)
    if refused is None:
        USES[use](feature, tmp_path)
        return
    with pytest.raises((ValueError, NotImplementedError), match=refused.message):
        USES[use](feature, tmp_path)


def test_each_entry_of_the_table_of_refusals_is_in_use():
    assert {use for one in REFUSALS for use in one.uses} <= {*USES}
    for one in REFUSALS:
        assert all(fnmatch.filter(FEATURES, name) for name in one.features), one
    assert {refusal(*pair) for pair in PAIRS} == {None, *REFUSALS}


def test_the_short_suite_has_a_tenth_of_the_pairs_and_each_feature_and_use():
    features, uses = zip(*SHORT, strict=True)
    assert len({*SHORT}) >= len(PAIRS) / 10
    assert ({*features}, {*uses}) == ({*FEATURES}, {*USES})
