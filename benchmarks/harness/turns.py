"""Processes that measure in turns, so that all of them meet the same load of the machine."""

import concurrent.futures
import contextlib
import multiprocessing
import os


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
    waiting = list(ours)
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
        connection.recv()
    except (EOFError, OSError):  # its function returned, or it was killed
        return False
    return True


def _keep(connection):
    """Stores the connection of this process, which only an initializer can receive."""
    global _connection
    _connection = connection


def _call(function):
    turn = Turn(_connection)
    try:
        turn.wait()
        return function(turn)
    finally:
        _connection.close()


def _result(future):
    try:
        return future.result()
    except RuntimeError as error:
        return error
