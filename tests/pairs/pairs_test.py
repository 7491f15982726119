"""Each feature with each use gives the result of the reference, or an error."""

import itertools
import os
import random

import pytest

from tests.pairs.features import FEATURES
from tests.pairs.uses import USES
from tests.slow import slow_but

# `make test` runs a quarter of the features, each with one use; each use runs with one or two.
# It omits replicas, whose graphs take long to trace. LARGEOUT_PAIRS_SEED selects other pairs.
_RANDOM = random.Random(os.environ.get("LARGEOUT_PAIRS_SEED", "0"))
_QUICK_USES = [use for use in USES if use != "replicas"]
_RANDOM.shuffle(_QUICK_USES)
_SHORT = list(
    zip(_RANDOM.sample(list(FEATURES), len(FEATURES) // 4), itertools.cycle(_QUICK_USES))
)


@pytest.mark.parametrize(
    ("feature", "use"), slow_but(_SHORT, itertools.product(FEATURES, USES))
)
def test_each_use_of_each_feature_is_right_or_an_error(feature, use, tmp_path):
    try:
        USES[use](feature, tmp_path)
    except (ValueError, NotImplementedError) as error:
        assert_is_helpful(str(error))
        pytest.skip(f"not supported: {error}")  # The report counts such pairs.


def assert_is_helpful(message):
    """Checks that an error of this library says what it received or what to do."""
    advice = ("Received", "Leave", "Omit", "Join", "Take", "Give", "Make", "Build", "Use")
    assert any(word in message for word in advice), message
