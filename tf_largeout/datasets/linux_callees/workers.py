"""Parses C files in processes of their own."""

import collections
import concurrent.futures
import itertools
import os
import pickle
import queue
import subprocess
import sys

from tf_largeout.datasets.linux_callees import c_functions
from tf_largeout.datasets.linux_callees.c_functions import Batch


class ParserWorkers:
    """Worker processes that run `c_functions` as a program.

    They are started afresh, not forked: TensorFlow's threads do not survive a fork, and a
    `multiprocessing` child would import the user's main program and TensorFlow again.

    Args:
        num_workers: how many. Default: one a core, since they wait for what is unpacked here.
    """

    def __init__(self, num_workers=None):
        self._num_workers = num_workers or os.cpu_count() or 1

    def parse(self, files, files_a_batch=256):
        """Parses an iterable of `(path, bytes)`.

        Yields:
            `(paths, Batch)` in the order of the files; few batches wait at a time.
        """
        idle = queue.SimpleQueue()
        processes = [self._start() for _ in range(self._num_workers)]
        for process in processes:
            idle.put(process)
        pool = concurrent.futures.ThreadPoolExecutor(self._num_workers)
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

    def _start(self):
        return subprocess.Popen(
            [sys.executable, "-I", c_functions.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )


def _ask(idle, batch):
    process = idle.get()
    try:
        pickle.dump(batch, process.stdin, pickle.HIGHEST_PROTOCOL)
        process.stdin.flush()
        return Batch(**pickle.load(process.stdout))
    except (EOFError, BrokenPipeError) as error:
        raise RuntimeError(
            f"A process that parses C files ended with status {process.wait()}; "
            f"is memory short?"
        ) from error
    finally:
        idle.put(process)
