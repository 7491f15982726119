"""Runs a function in a new process, so that it cannot affect other measurements."""

import concurrent.futures
import multiprocessing


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
