"""Parses files in worker processes."""

import collections
import concurrent.futures
import os
import pickle
import queue
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import IO, Any, TypeAlias, cast

_File: TypeAlias = tuple[str, bytes]
_Process: TypeAlias = "subprocess.Popen[bytes]"

# About 256 files of average size. Some folders of Linux have only files of 1 MB and more.
_BYTES_PER_BATCH = 4 << 20


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
            files_per_batch: Maximum number of files that a worker parses at a time. A batch
                also ends with the file in which it reaches 4 MiB.

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
        try:
            for batch in batches(files, files_per_batch, _BYTES_PER_BATCH):
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


def batches(files: Iterable[_File], most_files: int, most_bytes: int) -> Iterator[list[_File]]:
    """Yields lists of files. Each ends at `most_files` files or `most_bytes` bytes."""
    batch: list[_File] = []
    num_bytes = 0
    for file in files:
        batch.append(file)
        num_bytes += len(file[1])
        if len(batch) == most_files or num_bytes >= most_bytes:
            yield batch
            batch, num_bytes = [], 0
    if batch:
        yield batch


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
