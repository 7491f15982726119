"""Servers and trainers that end: lost steps and messages, with real processes."""

import pathlib
import subprocess
import sys
import time

import pytest

from lab.distribution import kills
from tests.source_tree import ROOT
from tf_largeout.distribute.local_servers import local_servers

pytestmark = pytest.mark.slow
CONNECTS = """
import sys
import tensorflow as tf
import tf_largeout as tflo
from tf_largeout.variables import cluster
tflo.distribute.connect(sys.argv[1:], timeout_s=60)
with tf.device(cluster.device(0)):
    held = tf.Variable(tf.zeros([1 << 28], tf.uint8))
print("connected", flush=True)
sys.stdin.read()
"""


def trainer(address):
    return subprocess.Popen(
        [sys.executable, "-c", CONNECTS, address],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def held_mb(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS:"))


def test_a_server_has_one_trainer_and_frees_memory_when_it_is_killed():
    with local_servers(1) as (server,):
        with trainer(server.address) as first:
            assert first.stdout.readline() == "connected\n"
            full = held_mb(server.pid)
            with trainer(server.address) as second:
                said = second.communicate(timeout=60)[1]
            assert second.returncode == 1
            assert f"Server {server.address} is used by the trainer at 127.0.0.1:" in said
            first.kill()
        end = time.monotonic() + 60
        while held_mb(server.pid) > full - 200 and time.monotonic() < end:
            time.sleep(0.1)
        assert held_mb(server.pid) <= full - 200  # of 256
        with trainer(server.address) as third:
            assert third.stdout.readline() == "connected\n"
            third.kill()


@pytest.mark.parametrize("fault", ["server, in a step", "disk full"])
def test_after_a_restart_nothing_before_the_last_backup_is_lost(fault):
    nothing, row = kills.main(["--times", "1", "--num-classes", "2000", "--only", fault])
    assert row["equal"] and row["digest"] == nothing["digest"]
    (found,) = row["faults"]
    assert found["named"] == (fault != "disk full")
