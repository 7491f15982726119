"""Runs a function in a fresh process, so that what it leaves behind measures nothing else."""

import concurrent.futures
import multiprocessing


def call(function, *arguments):
    """`function(*arguments)`, called in a process of its own, which ends with it.

    What goes in and comes out is pickled, and so is an error that `function` raises.

    Raises:
        RuntimeError: if the process was killed, as for want of memory. (A pool of
            `multiprocessing` would wait for it without end.)
    """
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()
