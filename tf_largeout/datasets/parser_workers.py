"""Parses files in processes of their own."""

import collections
import concurrent.futures
import itertools
import os
import pickle
import queue
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import IO, Any, TypeAlias, cast

_File: TypeAlias = tuple[str, bytes]
_Process: TypeAlias = "subprocess.Popen[bytes]"


class ParserWorkers:
    """Worker processes that run a module as a program.

    They are started afresh, not forked: TensorFlow's threads do not survive a fork, and a
    `multiprocessing` child would import the user's main program and TensorFlow again.

    Args:
        program: path of a module that needs the standard library only. As a program it reads
            pickled lists of `(path, bytes)` from its standard input and answers each with a
            pickled object.
        num_workers: how many. Default: one a core, since they wait for what is unpacked here.
    """

    def __init__(self, program: str, num_workers: int | None = None) -> None:
        self._program = program
        self._num_workers = num_workers or os.cpu_count() or 1

    def parse(
        self, files: Iterable[_File], files_a_batch: int = 256
    ) -> Iterator[tuple[list[str], Any]]:
        """Parses an iterable of `(path, bytes)`.

        Yields:
            `(paths, answer)` in the order of the files; few batches wait at a time.
        """
        idle: queue.SimpleQueue[_Process] = queue.SimpleQueue()
        processes = [self._start() for _ in range(self._num_workers)]
        for process in processes:
            idle.put(process)
        pool = concurrent.futures.ThreadPoolExecutor(self._num_workers)
        waiting: collections.deque[tuple[list[str], concurrent.futures.Future[Any]]]
        waiting = collections.deque()
        files = iter(files)
        try:
            while batch := list(itertools.islice(files, files_a_batch)):
                waiting.append(([path for path, _ in batch], pool.submit(_ask, idle, batch)))
                if len(waiting) > 2 * self._num_workers:
                    paths, answer = waiting.popleft()
                    yield paths, answer.result()
            for paths, answer in waiting:
                yield paths, answer.result()
        finally:
            for process in processes:
                process.kill()
                process.communicate()
            pool.shutdown(cancel_futures=True)

    def _start(self) -> _Process:
        return subprocess.Popen(
            [sys.executable, "-I", self._program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )


def _ask(idle: "queue.SimpleQueue[_Process]", batch: list[_File]) -> Any:
    process = idle.get()
    questions, answers = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
    try:
        pickle.dump(batch, questions, pickle.HIGHEST_PROTOCOL)
        questions.flush()
        return pickle.load(answers)
    except (EOFError, BrokenPipeError) as error:
        raise RuntimeError(
            f"A process that parses files ended with status {process.wait()}; is memory short?"
        ) from error
    finally:
        idle.put(process)
