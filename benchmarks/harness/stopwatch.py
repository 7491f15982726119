"""`Stopwatch`."""

import contextlib
import time


class Stopwatch:
    """Wall seconds, and CPU seconds of this process on all cores, without pauses.

    Args:
        wall, cpu: Initial values of both.
    """

    def __init__(self, wall=0.0, cpu=0.0):
        self._spent, self._start = (wall, cpu), None

    def start(self):
        """Starts it unless it is running."""
        self._start = self._start or _now()

    @contextlib.contextmanager
    def paused(self):
        """Stops both inside the `with` block."""
        self._spent, self._start = (self.wall, self.cpu), None
        yield
        self.start()

    @property
    def wall(self):
        """Elapsed wall-clock seconds."""
        return self._total(0)

    @property
    def cpu(self):
        """CPU seconds: two busy cores add two per second."""
        return self._total(1)

    def _total(self, kind):
        running = _now()[kind] - self._start[kind] if self._start else 0.0
        return self._spent[kind] + running


def _now():
    return time.perf_counter(), time.process_time()
