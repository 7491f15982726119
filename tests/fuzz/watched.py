"""Processes that make random calls, and the detection of failures.

They are forked from a process that has imported TensorFlow but not used it, which is fast.
"""

import contextlib
import dataclasses
import json
import mmap
import os
import signal
import struct
import sys
import tempfile
import time
import traceback

from tests.fuzz.calls import describe, make_calls

# Marks of the informative lines of a sanitizer, an abort or Python's fault handler.
REPORT_MARKS = (
    "ERROR: AddressSanitizer",
    "runtime error",
    "what()",
    "Check failed",
    "F0000",
    "#1 ",
)
# Messages of AddressSanitizer if `new` cannot allocate memory. It then aborts the process.
NO_MEMORY = tuple(
    f"ERROR: AddressSanitizer: {reason}"
    for reason in (
        "allocation-size-too-big",
        "out-of-memory",
        "allocator is out of memory",
    )
)


@dataclasses.dataclass
class Failure:
    """A call that killed its process, did not end, or returned a wrong result."""

    op: str
    seed: int
    call: int
    what: str
    arguments: str = ""


class Progress:
    """The number of the current call and the counts of outcomes so far, in shared memory."""

    _FORMAT = struct.Struct("4q")

    def __init__(self):
        self._memory = mmap.mmap(-1, self._FORMAT.size)

    def write(self, number, answered, refused, wrong):
        self._FORMAT.pack_into(self._memory, 0, number, answered, refused, wrong)

    def read(self):
        number, *counts = self._FORMAT.unpack_from(self._memory, 0)
        return number, counts


class Process:
    """A process that runs a function and writes its output to a file."""

    def __init__(self, function):
        self._output = tempfile.TemporaryFile()
        self.status = None
        self.pid = os.fork()
        if self.pid == 0:
            self._run(function)

    def _run(self, function):
        status = 1
        try:
            os.setpgid(0, 0)
            for descriptor in (1, 2):
                os.dup2(self._output.fileno(), descriptor)
            function()
            sys.stdout.flush()  # `_exit` does not flush.
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def is_done(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def kill(self):
        """Kills the process with a signal that makes the fault handler print a traceback."""
        for number in (signal.SIGABRT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)
            if self.wait(5):
                return

    def wait(self, seconds):
        """Waits, and returns whether the process has ended."""
        end = time.monotonic() + seconds
        while not self.is_done() and time.monotonic() < end:
            time.sleep(0.05)
        return self.is_done()

    def output(self):
        self._output.seek(0)
        return self._output.read().decode(errors="replace").splitlines()


class WatchedBatch:
    """The calls of a batch. After a failure a new process makes the remaining calls.

    Attributes:
        failures: A list of `Failure`.
        counts: Numbers of answered, refused and wrong calls.
        short: Number of calls that a sanitizer aborted because memory was short.
    """

    def __init__(self, batch, case, patience):
        self.batch, self._case, self._patience = batch, case, patience
        self.failures, self.counts, self.printed, self.short = [], [0, 0, 0], [], 0
        self._start(batch.first)

    def poll(self):
        """Checks the process, and starts another one if needed. Returns whether all is done."""
        number, _ = self._progress.read()
        if number != self._number:
            self._number, self._since = number, time.monotonic()
        if self._process.is_done():
            return self._has_ended()
        if time.monotonic() - self._since > self._patience:
            self._process.kill()
            return self._has_failed(f"not finished after {self._patience} s")
        return False

    def _start(self, first):
        rest = dataclasses.replace(self.batch, first=first)
        self._progress, self._number, self._since = Progress(), None, time.monotonic()
        self._progress.write(first, 0, 0, 0)
        progress = self._progress
        self._process = Process(lambda: make_calls(rest, self._case, progress))

    def _has_ended(self):
        number, _ = self._progress.read()
        if self._process.status != 0 or number < self.batch.end:
            return self._has_failed(f"exit status {self._process.status}")
        self._collect()
        return True

    def _has_failed(self, what):
        number, _ = self._progress.read()
        lines = self._process.output()
        self._collect()
        if any(sign in line for line in lines for sign in NO_MEMORY):
            self.short += 1
        else:
            report = [
                line.strip() for line in lines if any(one in line for one in REPORT_MARKS)
            ]
            self._fail(number, " | ".join([what, *report[:3]]))
        if number + 1 >= self.batch.end:
            return True
        self._start(number + 1)
        return False

    def _collect(self):
        _, counts = self._progress.read()
        self.counts = [sum(both) for both in zip(self.counts, counts, strict=True)]
        for line in self._process.output():
            if self.batch.print_calls:
                self.printed.append(line)
            if line.startswith('{"call"'):
                result = json.loads(line)
                if result["outcome"] == "wrong":
                    self._fail(result["call"], "wrong: " + result["text"])

    def _fail(self, number, what):
        one = dataclasses.replace(self.batch, first=number, end=number + 1)
        process = Process(lambda: describe(one, self._case))
        if not process.wait(120):
            process.kill()
        arguments = " ".join(process.output()[:1]) if process.status == 0 else "?"
        self.failures.append(Failure(one.op, one.seed, number, what, arguments))
