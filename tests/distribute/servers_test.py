"""Servers of shards, and the errors of `connect`."""

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from tests.distribute import trainer_process
from tests.distribute.trainer_process import ROOT
from tf_largeout.distribute import connect, server
from tf_largeout.distribute.local_servers import local_servers

OTHER_VERSION = """
import sys
from tf_largeout.ops import process_ops
process_ops.local_versions = lambda: "tf_largeout 9.9 with TensorFlow 9.8"
from tf_largeout.distribute import server
sys.exit(server.main(["--port", "0"]))
"""
NO_LIBRARY = """
import time
import tensorflow as tf
server = tf.distribute.Server.create_local_server()
print("ready", server.target.removeprefix("grpc://"), flush=True)
time.sleep(100)
"""


@contextlib.contextmanager
def listener(answer):
    """The address of a process that accepts a connection and sends `answer`."""
    with socket.create_server(("127.0.0.1", 0)) as one:

        def accept():
            with contextlib.suppress(OSError):
                with one.accept()[0] as caller:
                    caller.sendall(answer)
                    time.sleep(1)

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{one.getsockname()[1]}"


@pytest.mark.parametrize(
    "addresses, match",
    [
        ([], r"Received: addresses=\[\]"),
        ("127.0.0.1:1", "must be a list"),
        (["localhost"], "\"host:port\". Received: 'localhost'"),
        (["localhost:0"], "localhost:0"),
        (["localhost:70000"], "localhost:70000"),
        (["a:1", "b:1", "a:1"], "name each server once"),
    ],
)
def test_invalid_addresses_raise_an_error(addresses, match):
    with pytest.raises(ValueError, match=match):
        connect(addresses)


def test_servers_that_do_not_answer_raise_an_error_within_the_timeout():
    start = time.monotonic()
    with listener(b"") as silent, listener(b"HTTP/1.1 400 Bad Request\r\n\r\n") as other:
        with pytest.raises(ConnectionError) as error:
            connect(["127.0.0.1:1", silent, other], timeout_s=0.5)
    assert time.monotonic() - start < 5
    message = str(error.value)
    assert "127.0.0.1:1 (Connection refused)" in message and "tf_largeout.distribute" in message
    assert f"{silent} (timed out)" in message and f"{other} (another kind" in message


def test_a_port_in_use_is_reported(capsys):
    with socket.create_server(("", 0)) as one:
        port = one.getsockname()[1]
        assert server.main(["--port", str(port)]) == 1
    assert f"Port {port} is used" in capsys.readouterr().err


@pytest.mark.slow
def test_training_on_two_servers_is_bit_identical_to_one_process(tmp_path):
    """`fit`, `evaluate`, `predict`, `top_k`, callbacks and files are bit-identical."""
    with local_servers(2) as servers:
        addresses = [one.address for one in servers]
        found = trainer_process.found(trainer_process.run("trainer", str(tmp_path), *addresses))
    devices = found.pop("devices")
    for part in ("embeddings", "bias"):
        places = {name: place for name, place in devices.items() if part in name}
        assert all(
            f"ps/replica:0/task:{int(name[name.index(part) + len(part) + 1]) % 2}/" in place
            for name, place in places.items()
        )
        assert len(places) == 3 * (1 + 3)  # a weight, m, v and the last step
    assert all(found.values()), found


@pytest.mark.slow
def test_resizing_moves_rows_between_servers():
    """Bit-identical to one shard; the trainer never holds the matrix or its slots."""
    with local_servers(2) as servers:
        ended = trainer_process.run("resizing_trainer", *(one.address for one in servers))
    found = trainer_process.found(ended)
    assert found["equal"] and found["devices"] and found["moved"], found
    places = [f"/job:ps/replica:0/task:{number}/device:CPU:0" for number in (0, 1)]
    assert found["places"] == places
    assert found["grown_mb"] < found["matrix_mb"] / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "code, match",
    [
        (
            OTHER_VERSION,
            "has tf_largeout 9.9 with TensorFlow 9.8, and this process tf_largeout",
        ),
        (NO_LIBRARY, "All of .* must be servers of tf_largeout"),
    ],
    ids=["other version", "no library"],
)
def test_servers_of_other_versions_raise_an_error(code, match):
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as one:
        address = one.stdout.readline().split()[-1]
        connects = f"import tf_largeout as t; t.distribute.connect(['{address}'])"
        run = subprocess.run(
            [sys.executable, "-c", connects], cwd=ROOT, capture_output=True, check=False
        )
        one.kill()
    assert run.returncode == 1
    assert match.split(" .* ")[0] in run.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_server(number):
    command = [sys.executable, "-m", "tf_largeout.distribute.server", "--port", "0"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as one:
        assert one.stdout.readline().startswith("ready 127.0.0.1:")
        one.send_signal(number)
        printed, said = one.communicate(timeout=20)
    assert one.returncode == 0 and printed == "stopped\n"
    assert "TensorFlow has no passwords" in said
