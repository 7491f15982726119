"""Two workers of a `MultiWorkerMirroredStrategy`, each a process of this machine."""

import json
import os
import pathlib
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]


def run(code, *arguments):
    """Returns what each of two workers prints that run `code`, with arguments."""
    sockets = [socket.create_server(("localhost", 0)) for _ in range(2)]
    workers = [f"localhost:{server.getsockname()[1]}" for server in sockets]
    for server in sockets:
        server.close()
    processes = []
    for index in range(2):
        task = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", code, *arguments],
                cwd=ROOT,
                env={**os.environ, "TF_CONFIG": json.dumps(task)},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    try:
        return [process.communicate(timeout=120)[0].strip() for process in processes]
    finally:
        for process in processes:
            process.kill()  # one waits for the other, if that has failed
