import math
import os
import signal

import pytest

from benchmarks.harness import own_process


def test_a_function_is_called_in_another_process():
    assert own_process.call(os.getpid) != os.getpid()
    assert own_process.call(math.gcd, 12, 18) == 6


def test_an_error_in_the_process_is_raised_by_the_caller():
    with pytest.raises(ValueError, match="math domain error"):
        own_process.call(math.sqrt, -1.0)


def test_a_killed_process_is_reported():
    with pytest.raises(RuntimeError, match="terminated abruptly"):
        own_process.call(signal.raise_signal, signal.SIGKILL)
