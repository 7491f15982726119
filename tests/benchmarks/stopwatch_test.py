import time

from benchmarks.harness.training import Stopwatch


def _compute(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_it_counts_wall_and_cpu_time_without_pauses():
    stopwatch = Stopwatch(wall=10.0, cpu=5.0)
    assert (stopwatch.wall, stopwatch.cpu) == (10.0, 5.0)
    stopwatch.start()
    _compute(0.05)
    time.sleep(0.2)
    with stopwatch.paused():
        held = stopwatch.wall, stopwatch.cpu
        _compute(0.3)
        assert (stopwatch.wall, stopwatch.cpu) == held
    assert 10.25 <= stopwatch.wall
    assert 5.05 <= stopwatch.cpu < 5.2
    stopwatch.start()  # it continues
    assert stopwatch.cpu >= 5.05
