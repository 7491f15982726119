"""Samplers under a strategy of several workers, each in a process of its own."""

import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BUILDS_A_HEAD = """
import sys
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
from tf_largeout.layers import LargeOutput
with strategy.scope():
    try:
        LargeOutput(2_000, sampler=sys.argv[1]).build((None, 8))
        print("built")
    except ValueError as error:
        print(error)
"""


def build_in_two_workers(sampler):
    """What each worker prints."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(2)]
    workers = [f"localhost:{server.getsockname()[1]}" for server in sockets]
    for server in sockets:
        server.close()
    processes = []
    for index in range(2):
        task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", BUILDS_A_HEAD, sampler],
                cwd=ROOT,
                env={**os.environ, "TF_CONFIG": json.dumps(task)},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    return [process.communicate(timeout=120)[0].strip() for process in processes]


@pytest.mark.slow
def test_static_samplers_are_built_under_several_workers():
    assert build_in_two_workers("uniform") == ["built", "built"]


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["lsh", "inverted_file"])
def test_searches_say_which_strategy_they_need(sampler):
    for printed in build_in_two_workers(sampler):
        assert "which CollectiveAllReduceStrategy cannot make" in printed
        assert "Take a static sampler" in printed
