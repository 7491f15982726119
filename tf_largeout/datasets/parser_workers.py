"""Parses files in worker processes."""

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

    They are new processes, not forks, because TensorFlow's threads do not survive a fork.
    `multiprocessing` is not used, because its child processes would import the user's main
    program and TensorFlow again.

    Args:
        program: Path of a module that needs the standard library only. As a program it reads
            pickled lists of `(path, bytes)` from its standard input, and writes one pickled
            result for each to its standard output.
        num_workers: Number of processes. Defaults to the number of cores.
    """

    def __init__(self, program: str, num_workers: int | None = None) -> None:
        self._program = program
        self._num_workers = num_workers or os.cpu_count() or 1

    def parse(
        self, files: Iterable[_File], files_per_batch: int = 256
    ) -> Iterator[tuple[list[str], Any]]:
        """Parses files in batches.

        Args:
            files: Iterable of `(path, bytes)`. It is read only a few batches ahead.
            files_per_batch: Number of files that a worker parses at a time.

        Yields:
            `(paths, result)` per batch, in the order of the files.
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
            while batch := list(itertools.islice(files, files_per_batch)):
                waiting.append(([path for path, _ in batch], pool.submit(_parse, idle, batch)))
                if len(waiting) > 2 * self._num_workers:
                    paths, result = waiting.popleft()
                    yield paths, result.result()
            for paths, result in waiting:
                yield paths, result.result()
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


def _parse(idle: "queue.SimpleQueue[_Process]", batch: list[_File]) -> Any:
    process = idle.get()
    requests, results = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
    try:
        pickle.dump(batch, requests, pickle.HIGHEST_PROTOCOL)
        requests.flush()
        return pickle.load(results)
    except (EOFError, BrokenPipeError) as error:
        raise RuntimeError(
            f"A process that parses files ended with status {process.wait()}. Check whether "
            "the machine has run out of memory."
        ) from error
    finally:
        idle.put(process)
