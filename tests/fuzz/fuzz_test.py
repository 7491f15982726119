"""All ops have random calls, and failures are detected."""

import json
import subprocess
import sys

import pytest

from tests.fuzz.table import cases, expected_names
from tests.source_tree import ROOT

# One call per kind of failure, in watched processes.
WATCH = """
import json, os, signal, time
from tests.fuzz.calls import Batch
from tests.fuzz.draws import Call
from tests.fuzz.watched import WatchedBatch

def case(draws):
    def function(number):
        if number == 3: os.kill(os.getpid(), signal.SIGSEGV)
        if number == 5: time.sleep(600)
        if number == 7: raise ValueError("refused")
        if number == 9: raise KeyError("no error of an op")
        return number
    def check(number):
        assert number != 2
    return Call(function, (draws.number,), {}, check)

watched = WatchedBatch(Batch("made_up", 1, 0, 12), case, patience=3)
while not watched.poll(): time.sleep(0.05)
print(json.dumps([watched.counts, [vars(one) for one in watched.failures]]))
"""


def test_every_op_has_random_calls():
    missing = expected_names() - set(cases())
    assert not missing, f"Write a function of its name in tests/fuzz/cases for {missing}."


@pytest.mark.slow  # former_failures_test.py makes other calls.
@pytest.mark.parametrize("calls", ["2", "10"])
def test_a_short_run_finds_nothing(calls):
    done = _run("-m", "tests.fuzz", "--calls", calls, "--seed", "14")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def watched():
    done = _run("-c", WATCH)
    assert done.returncode == 0, done.stderr
    counts, failures = json.loads(done.stdout)
    return counts, {failure["call"]: failure for failure in failures}


@pytest.mark.slow
def test_crashes_hangs_and_wrong_results_are_detected(watched):
    _, failures = watched
    assert sorted(failures) == [2, 3, 5, 9]
    assert "wrong: answered, but AssertionError" in failures[2]["what"]
    assert "exit status -11" in failures[3]["what"]
    assert "not finished after 3 s" in failures[5]["what"]
    assert "KeyError" in failures[9]["what"]


@pytest.mark.slow
def test_a_failure_has_its_arguments(watched):
    _, failures = watched
    assert failures[3]["arguments"] == "function(3)"


@pytest.mark.slow
def test_the_calls_after_a_failure_are_made(watched):
    (answered, refused, wrong), _ = watched
    assert (answered, refused, wrong) == (7, 1, 2)


def _run(*command):
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=500
    )
