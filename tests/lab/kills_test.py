from lab.distribution import kills


def test_lost_steps_are_those_since_the_last_backup():
    assert kills._steps_since_backup(["epoch", "step", "step", "fault", "step"]) == 3
    assert kills._steps_since_backup(["step", "saved", "epoch", "step"]) == 1
