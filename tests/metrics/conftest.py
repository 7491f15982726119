import pytest

from tests.metrics.table import METRICS, SHORT
from tests.slow import slow_but


@pytest.fixture(params=slow_but(SHORT, METRICS))
def member(request):
    """A metric and its oracle."""
    make, oracle = METRICS[request.param]
    return make(), oracle
