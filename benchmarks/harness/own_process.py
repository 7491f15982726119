"""Functions and trainings in processes of their own, one after the other or in turns."""

import abc
import concurrent.futures
import contextlib
import dataclasses
import json
import multiprocessing
import os
import pathlib

from benchmarks.harness.files import stderr_to


def call(function, *arguments):
    """Returns `function(*arguments)`, called in a new process that ends afterwards.

    Arguments and result are pickled, and so is an error that `function` raises.

    Raises:
        RuntimeError: If the process was killed, for example out of memory. (A pool of
            `multiprocessing` would wait forever.)
    """
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


class Turn:
    """Lets a process wait for its turn. Its caller is `call_in_turns`.

    Args:
        connection: To the process that grants the turns.
    """

    def __init__(self, connection):
        self._connection = connection

    def wait(self):
        """Returns when it is this process's turn."""
        self._connection.recv()

    def pass_on(self):
        """Ends the turn, and returns when the next one begins."""
        self._connection.send(None)
        self.wait()


def call_in_turns(functions, environments=None):
    """Calls each `function(turn)` in its own process; only one process runs at a time.

    A function calls `turn.pass_on()` to end its turn. The start and the end of its process
    belong to its turns.

    Args:
        functions: Picklable functions of a `Turn`.
        environments: A dict for each process, of environment variables other than those of this
            process; None for no others.

    Returns:
        Their results, in the same order. The result of a process that was killed is the
        RuntimeError that says so.
    """
    context = multiprocessing.get_context("spawn")
    pools, futures, ours = [], [], []
    environments = environments or [{} for _ in functions]
    for function, environment in zip(functions, environments, strict=True):
        connection, other = context.Pipe()
        pools.append(
            concurrent.futures.ProcessPoolExecutor(
                1, mp_context=context, initializer=_keep, initargs=(other,)
            )
        )
        with _set(environment):  # the process starts here
            futures.append(pools[-1].submit(_call, function))
        other.close()  # so that `recv` below fails if the process ends
        ours.append(connection)
    # The first turn begins when all processes have imported their modules.
    waiting = [connection for connection in ours if _answers(connection)]
    while waiting:
        waiting = [connection for connection in waiting if _grant(connection)]
    for pool in pools:
        pool.shutdown()
    return [_result(future) for future in futures]


@contextlib.contextmanager
def _set(environment):
    former = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in former.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _grant(connection):
    """Grants a turn; returns whether the process wants another one."""
    try:
        connection.send(None)
    except OSError:  # it was killed
        return False
    return _answers(connection)


def _answers(connection):
    """Waits for a message; returns False if the function returned, or the process is killed."""
    try:
        connection.recv()
    except (EOFError, OSError):
        return False
    return True


def _keep(connection):
    """Stores the connection of this process, which only an initializer can receive."""
    global _connection
    _connection = connection


def _call(function):
    turn = Turn(_connection)
    try:
        turn.pass_on()
        return function(turn)
    finally:
        _connection.close()


def _result(future):
    try:
        return future.result()
    except RuntimeError as error:
        return error


@dataclasses.dataclass(frozen=True)
class ProcessRun(abc.ABC):
    """A method that is trained on a task in its own process, with a log.

    Attributes:
        task: Name of a task, see `tasks.load`.
        method: Name of the method in logs.
        directory: Folder of `METHOD.json`, the log, and of other files of the run.
    """

    task: str
    method: str
    directory: str

    @property
    @abc.abstractmethod
    def title(self):
        """Name in tables and pictures."""

    @abc.abstractmethod
    def identity(self):
        """Returns the settings that identify the log of this run, as a dict."""

    @abc.abstractmethod
    def is_finished(self, log):
        """Returns whether nothing is left to train."""

    @abc.abstractmethod
    def train(self):
        """Trains in this process and writes the log."""

    @property
    def resumable(self):
        """Whether an incomplete log is continued; otherwise it is discarded."""
        return False

    @property
    def log_path(self):
        """Path of the log."""
        return pathlib.Path(self.directory) / f"{self.method}.json"

    def in_own_process(self):
        """Trains in a new process as far as needed and returns the log.

        Raises:
            RuntimeError: If the process failed; the message contains the end of its output.
        """
        log = self.read_log()
        if self.is_finished(log):
            return log
        if not self.resumable:
            self.log_path.unlink(missing_ok=True)
        child = multiprocessing.get_context("spawn").Process(target=self.train)
        said = self.log_path.with_suffix(".stderr")
        with stderr_to(said):
            child.start()
        child.join()
        if child.exitcode != 0:
            end = said.read_text(errors="replace")[-2000:]
            raise RuntimeError(
                f"{self.method} on {self.task} ended with code {child.exitcode}:\n{end}"
            )
        return self.read_log()

    def read_log(self):
        """Returns the log so far, or a new one.

        Raises:
            ValueError: If the log belongs to a run with other settings.
        """
        wanted = {"task": self.task, "method": self.method, **self.identity()}
        if not self.log_path.exists():
            return {**wanted, "title": self.title, "points": [], "peak_mb": 0.0}
        log = json.loads(self.log_path.read_text())
        differing = [key for key in wanted if log.get(key) != wanted[key]]
        if differing:
            raise ValueError(
                f"{self.log_path} is the log of another run: {', '.join(differing)} differ. "
                "Move it away or give another directory."
            )
        return log
