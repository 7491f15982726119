"""`Stopwatch`."""

import contextlib
import time


class Stopwatch:
    """Seconds that passed, and that this process computed on all cores, pauses apart.

    Args:
        wall, cpu: seconds of both that count already.
    """

    def __init__(self, wall=0.0, cpu=0.0):
        self._spent, self._start = (wall, cpu), None

    def start(self):
        """Lets it run, if it does not yet."""
        self._start = self._start or _now()

    @contextlib.contextmanager
    def paused(self):
        """Within it both stand still."""
        self._spent, self._start = (self.wall, self.cpu), None
        yield
        self.start()

    @property
    def wall(self):
        """Seconds that passed."""
        return self._total(0)

    @property
    def cpu(self):
        """Seconds of computation: with two busy cores two a second."""
        return self._total(1)

    def _total(self, kind):
        running = _now()[kind] - self._start[kind] if self._start else 0.0
        return self._spent[kind] + running


def _now():
    return time.perf_counter(), time.process_time()
