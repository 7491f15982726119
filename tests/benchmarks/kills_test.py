from tf_largeout.benchmarks import kills


def test_lost_is_what_was_done_after_the_last_backup():
    assert kills._steps_since_backup(["epoch", "step", "step", "fault", "step"]) == 3
    assert kills._steps_since_backup(["step", "saved", "epoch", "step"]) == 1


def test_a_row_says_whether_the_run_was_the_same():
    fault = {"error": 1.0, "again": 9.0, "lost": 7, "named": True}
    row = {"title": "server, in a step", "faults": [fault, {**fault, "error": 2.0}]}
    text = kills.line({**row, "equal": True})
    assert "2 times, equal to the bit" in text and "error   1.5 (1.0 to 2.0)" in text
    assert "NOT EQUAL" in kills.line({**row, "equal": False})
