"""The process continues if an op, or one of its threads, cannot allocate memory."""

import json
import os
import subprocess
import sys

import pytest

from tests.ops.out_of_memory import CASES
from tf_largeout.ops import library

pytestmark = [
    pytest.mark.slow,  # tests/fuzz/former_failures_test.py has more calls with little memory.
    pytest.mark.skipif(
        "asan" in str(library.LOADED),
        reason="sanitizers need an address space without a limit",
    ),
]


@pytest.fixture(scope="module")
def outcomes():
    child = subprocess.run(
        [sys.executable, "-m", "tests.ops.out_of_memory"],
        capture_output=True,
        text=True,
        timeout=900,
        # Freed memory is returned to the system, so that each op has to allocate its own.
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "MALLOC_MMAP_THRESHOLD_": "65536"},
    )
    assert child.returncode == 0, child.stderr[-3000:]
    return json.loads(child.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_the_error_of_the_op_states_the_requested_memory(outcomes, name):
    (error, message), _ = outcomes[name]
    assert error == "ResourceExhaustedError"
    assert "out of memory for the scratch of Largeout" in message
    assert "on inputs " in message and "attributes" in message


@pytest.mark.parametrize("name", CASES)
def test_variables_can_be_used_after_the_error(outcomes, name):
    _, sound = outcomes[name]
    assert sound
