"""Compiles objects in parallel, and only those whose inputs have changed."""

import concurrent.futures
import dataclasses
import os
import pathlib
import shlex
import subprocess
import time

from build_tools.errors import BuildError


@dataclasses.dataclass(frozen=True)
class Object:
    """One object file: the command up to its source, the source, the output."""

    command: tuple[str, ...]
    source: pathlib.Path
    output: pathlib.Path

    @property
    def full_command(self) -> list[str]:
        """The compiler call, which also writes the headers it read to `.d`."""
        source, output = str(self.source), str(self.output)
        return [*self.command, "-MMD", "-MF", f"{output}.d", "-c", source, "-o", output]


def compile_all(objects: list[Object]) -> list[pathlib.Path]:
    """Brings all objects up to date and returns their paths.

    Raises:
        BuildError: if a source does not compile; the compiler has said why.
    """
    stale = [one for one in objects if not is_fresh(one)]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        list(pool.map(_compile, stale))
    return [one.output for one in objects]


def is_fresh(one: Object) -> bool:
    """Whether the object was made by this command from files not changed since."""
    stamp, depfile = pathlib.Path(f"{one.output}.cmd"), pathlib.Path(f"{one.output}.d")
    if not (one.output.exists() and stamp.exists() and depfile.exists()):
        return False
    if stamp.read_text() != shlex.join(one.full_command):
        return False
    made = one.output.stat().st_mtime
    inputs = shlex.split(depfile.read_text().replace("\\\n", " ").split(": ", 1)[1])
    return all(os.path.exists(name) and os.path.getmtime(name) <= made for name in inputs)


def run(command: list[str], what: str) -> None:
    """Runs a compiler or linker.

    Raises:
        BuildError: if it fails.
    """
    done = subprocess.run(command, check=False)
    if done.returncode != 0:
        raise BuildError(
            f"{what} failed with exit status {done.returncode}; the compiler's messages are "
            f"above. The command was: {shlex.join(command)}"
        )


def _compile(one: Object) -> None:
    one.output.parent.mkdir(parents=True, exist_ok=True)
    print(f"compiling {one.output.relative_to(one.output.parents[1])}", flush=True)
    stamp = pathlib.Path(f"{one.output}.cmd")
    stamp.unlink(missing_ok=True)
    started = time.time()
    run(one.full_command, f"Compiling {one.source}")
    # What is edited while the compiler runs may have been read before.
    os.utime(one.output, (started, started))
    stamp.write_text(shlex.join(one.full_command))
