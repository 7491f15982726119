"""Runs the server of `examples/serving` in a subprocess."""

import contextlib
import http.client
import json
import pathlib
import re
import subprocess
import sys
import urllib.parse

from tests.source_tree import ROOT


class Server:
    """A running server.

    Args:
        line: Output of the server at start: "NAME, version 1: http://127.0.0.1:8501/".
        process: Process of the server.
    """

    def __init__(self, line, process):
        self.process = process
        self.model = line.split(",")[0]
        self.address = line.split()[-1]
        self.host = urllib.parse.urlsplit(self.address).netloc
        self.predict_path = f"/v1/models/{self.model}:predict"

    def ask(self, method, path, body=None, headers=()):
        """Sends a request and returns the status and the text of the response."""
        with contextlib.closing(
            http.client.HTTPConnection(self.host, timeout=60)
        ) as connection:
            connection.request(method, path, body, dict(headers))
            response = connection.getresponse()
            return response.status, response.read().decode()

    def predict(self, request):
        """Sends bytes or JSON and returns the status and the JSON of the response."""
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        status, text = self.ask("POST", self.predict_path, body)
        return status, json.loads(text)

    def peak_memory(self):
        """Returns the peak memory of the process in bytes."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.search(r"VmHWM:\s*(\d+) kB", status)[1])


@contextlib.contextmanager
def running(folder, *options):
    """Starts a `Server` for the newest export in `folder`."""
    command = [sys.executable, "-m", "examples.serving.serve", folder, "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield Server(process.stdout.readline(), process)
    finally:
        process.kill()
        process.communicate()
