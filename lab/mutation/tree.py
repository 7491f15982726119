"""A copy of the repository in which faults are planted and tested."""

import os
import pathlib
import re
import subprocess
import sys
import time
from typing import NamedTuple

from lab.mutation.fault import Fault

_OPS = "tf_largeout/ops/_largeout_ops.so"
_FAILED = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+)", re.MULTILINE)  # without parameters
_FOUND, _PASSED, _NO_TESTS = 1, 0, 5  # exit codes of pytest


class Result(NamedTuple):
    """The result of one of the two suites for a fault.

    Attributes:
        found: Whether a test failed.
        by: The first test that failed, or "timeout"; empty if none did.
        seconds: How long the tests ran.
    """

    found: bool
    by: str
    seconds: float


class Tree:
    """A git worktree of the current commit, with its own op library.

    Args:
        root: Folder of the worktree; created if missing.
        timeout: Seconds after which a run of pytest is stopped and counts as failed.
    """

    def __init__(self, root: pathlib.Path, timeout: float) -> None:
        self._root, self._timeout = root.resolve(), timeout
        if not self._root.exists():
            subprocess.run(["git", "worktree", "add", "--detach", self._root], check=True)
        self._restore()
        commit = subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()
        self._git("checkout", "-q", "--detach", commit)
        self._is_built = False

    def _build(self) -> None:
        """Brings the op library up to date; raises RuntimeError if it does not compile."""
        command = [sys.executable, "-m", "build_tools", "op_library", "--copy-to", _OPS]
        done = self._run(command)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")

    def test(self, fault: Fault) -> tuple[Result, Result]:
        """Plants a fault, tests it and removes it; returns the results of short and long suite.

        The long suite contains the short one, so it only runs if the short one passes.
        """
        fault.plant(self._root)
        is_compiled = fault.file.startswith("custom_ops/")
        try:
            if is_compiled or not self._is_built:
                self._build()
            self._is_built = not is_compiled  # for the next fault
            short = self._suite(fault.tests, [])
            return short, short if short.found else self._suite(fault.tests, ["--run-slow"])
        finally:
            self._restore()

    def _suite(self, tests: tuple[str, ...], options: list[str]) -> Result:
        """Runs the most specific tests, and the others if these pass."""
        start = time.monotonic()
        for paths in (tests[:1], tests[1:]):
            by = self._first_failure([*paths, *options]) if paths else ""
            if by:
                return Result(True, by, time.monotonic() - start)
        return Result(False, "", time.monotonic() - start)

    def _first_failure(self, arguments: list[str]) -> str:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "-n", "0"]
        try:
            done = self._run([*command, "-p", "no:cacheprovider", *arguments], self._timeout)
        except subprocess.TimeoutExpired:
            return "timeout"
        if done.returncode in (_PASSED, _NO_TESTS):
            return ""
        failed = _FAILED.search(done.stdout)
        if done.returncode == _FOUND and failed:
            return failed.group(1)
        return f"pytest ended with {done.returncode}"  # a crash of the process

    def _run(
        self, command: list[str], timeout: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self._root,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
        )

    def _restore(self) -> None:
        self._git("checkout", "-q", "--", ".")

    def _git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self._root, check=True)
