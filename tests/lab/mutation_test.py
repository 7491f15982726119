"""The table of planted faults matches the sources."""

from lab.mutation.table import FAULTS
from tests.source_tree import ROOT

ALL = [fault for faults in FAULTS.values() for fault in faults]


def test_each_fault_changes_one_place_and_has_tests():
    for fault in ALL:
        assert fault.old in fault.source(ROOT) and fault.new != fault.old
        missing = [path for path in fault.tests if not (ROOT / path).exists()]
        assert not missing, f"The tests of '{fault.title}' are missing: {missing}."


def test_there_are_fifty_faults_with_distinct_titles():
    assert len({fault.title for fault in ALL}) == len(ALL) == 50
