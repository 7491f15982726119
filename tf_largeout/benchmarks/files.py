"""Reports as text and as files, and where child processes say what they say."""

import contextlib
import json
import os
import pathlib
import statistics


def mean_and_deviation(values, digits=1):
    """Mean ± standard deviation as text; of one value itself, of none nothing."""
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):,.{digits}f}{spread}" if values else ""


def write_json(path, content):
    """Writes JSON so that a reader sees the old file or the new one, never a half."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(path.suffix + ".tmp")
    temporary.write_text(json.dumps(content, indent=1))
    os.replace(temporary, path)


@contextlib.contextmanager
def stderr_to(path):
    """Processes started inside write what they say on stderr to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = os.dup(2)
    try:
        with open(path, "w") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
