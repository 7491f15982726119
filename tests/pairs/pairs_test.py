"""Each feature with each use gives the result of the reference, or an error."""

import os
import random

import pytest

from tests.pairs.features import FEATURES
from tests.pairs.uses import USES

_CELLS = [(feature, use) for feature in FEATURES for use in USES]
# `make test` runs a tenth of the cells. It omits replicas, whose graphs take long to trace.
# LARGEOUT_PAIRS_SEED selects another tenth.
_QUICK = [cell for cell in _CELLS if cell[1] != "replicas"]
_RANDOM = random.Random(os.environ.get("LARGEOUT_PAIRS_SEED", "0"))
_SHORT = set(_RANDOM.sample(_QUICK, len(_CELLS) // 10))


@pytest.mark.parametrize(
    ("feature", "use"),
    [
        pytest.param(*cell, marks=[] if cell in _SHORT else [pytest.mark.slow])
        for cell in _CELLS
    ],
)
def test_the_result_is_right_or_an_error(feature, use, tmp_path):
    try:
        USES[use](feature, tmp_path)
    except (ValueError, NotImplementedError) as refusal:
        assert_is_helpful(str(refusal))
        pytest.skip(f"refused: {refusal}")  # So the report counts such cells.


def assert_is_helpful(message):
    """Checks that an error of this library says what it received or what to do."""
    advice = ("Received", "Leave", "Join", "Take", "Give", "Make", "Build", "Use")
    assert any(word in message for word in advice), message
