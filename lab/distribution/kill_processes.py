"""The servers and the trainer of `kills`, and the faults that are injected."""

import random
import re
import resource
import subprocess
import sys
import tempfile
import time

_COUNT = 2
_SMALL = 4096  # maximum size of a file in bytes, to imitate a full disk
_IN_A_BACKUP_S = 0.15  # time from the start of a backup to the fault


class Processes:
    """Two servers and a trainer on this machine.

    Args:
        folder: Folder of the backups.
        num_classes: Number of classes of the model.
        epochs: Epochs of the training.
    """

    def __init__(self, folder, num_classes, epochs):
        self._arguments = [folder, str(num_classes), str(epochs)]
        self._servers, self._addresses = [], []
        self._trainer = self._log = None
        self.ended = None

    def __enter__(self):
        self._servers = [_server() for _ in range(_COUNT)]
        self._addresses = [_address(server) for server in self._servers]
        return self

    def __exit__(self, *_):
        for one in self._servers:
            _end(one)
        self._end_trainer()

    def start_trainer(self):
        """Starts a new trainer and returns the time."""
        self._end_trainer()
        began = time.monotonic()
        self._log = tempfile.TemporaryFile("w+")
        module = [sys.executable, "-m", "lab.distribution.kill_run"]
        self._trainer = subprocess.Popen(
            [*module, *self._arguments, *self._addresses],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        return began

    def lines(self):
        """Yields each line that the trainer prints, as words, with its time."""
        for line in self._trainer.stdout:
            yield line.split(), time.monotonic()
        self._trainer.wait()
        self.ended = time.monotonic()

    def strike(self, fault):
        """Injects `fault` and returns the time."""
        victim, moment = fault
        if moment == "saving":
            time.sleep(random.uniform(0, _IN_A_BACKUP_S) if victim != "disk" else 0)
        if victim == "disk":
            self._limit(_SMALL)
        else:
            server = random.choice(self._servers)
            (server if victim == "server" else self._trainer).kill()
        return time.monotonic()

    def restore(self):
        """Restarts servers that ended, at the same address, and removes file limits."""
        self._limit(resource.RLIM_INFINITY)
        for number, server in enumerate(self._servers):
            if server.poll() is not None:
                _end(server)
                port = self._addresses[number].rpartition(":")[2]
                self._servers[number] = _server(port)

    def said(self):
        """Returns what the trainer wrote to standard error."""
        self._log.seek(0)
        return self._log.read()

    def is_named(self):
        """Returns whether the trainer's last message names a server that ended."""
        gone = [
            address
            for address, server in zip(self._addresses, self._servers, strict=True)
            if server.poll() is not None
        ]
        said = self.said()
        return any(
            re.search(rf"{re.escape(one)} is gone|No server .*{one}", said) for one in gone
        )

    def _end_trainer(self):
        if self._trainer is not None:
            _end(self._trainer)
            self._log.close()

    def _limit(self, size):
        for server in self._servers:
            if server.poll() is None:
                hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)[1]
                resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, hard))


def _server(port="0"):
    command = [sys.executable, "-m", "tf_largeout.distribute.server", "--port", port]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


def _end(process):
    process.kill()
    process.wait()
    process.stdout.close()


def _address(server):
    return server.stdout.readline().split()[-1]
