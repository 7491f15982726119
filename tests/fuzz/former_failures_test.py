"""Calls that once failed: each is refused by an error, or answered."""

import json
import os
import subprocess
import sys

import pytest

from tests.fuzz.former_failures import CALLS
from tests.source_tree import ROOT


@pytest.fixture(scope="module")
def outcomes():
    """What became of the calls, by name; they run in processes of their own."""
    command = [sys.executable, "-m", "tests.fuzz.former_failures"]
    # oneDNN's allocator waits 10 s for memory to come free before it says that there is none.
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_once_failed_does_not(outcomes, name):
    _, errors = CALLS[name]
    assert outcomes[name] in (errors or ("returned",))
