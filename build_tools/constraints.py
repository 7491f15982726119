"""Pins the packages of `build_tools.requirements` in constraints.txt, for `make constraints`.

Run with the path of uv, which finds versions for all supported Pythons at once:
`python -m build_tools.constraints UV`. It keeps the comment at the top of the file.
"""

import pathlib
import subprocess
import sys

from build_tools.requirements import IN_VENV, IN_VENV_JAX

FILE = pathlib.Path(__file__).parent / "constraints.txt"
_OLDEST_PYTHON = "3.10"
# Conditions that hold wherever the project runs; see [tool.uv] in pyproject.toml.
_ALWAYS = ("sys_platform == 'linux'", "python_full_version < '3.14'")


def main(uv: str) -> None:
    """Writes the newest versions that fit together."""
    options = [
        "--universal",
        "--python-version",
        _OLDEST_PYTHON,
        "--no-header",
        "--no-annotate",
    ]
    done = subprocess.run(
        [uv, "pip", "compile", "-", "--quiet", *options],
        input="\n".join([*IN_VENV, *IN_VENV_JAX]),
        cwd=FILE.parent.parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    header = [line for line in FILE.read_text().splitlines() if line.startswith("#")]
    pins = [shortened(line) for line in done.stdout.splitlines()]
    FILE.write_text("\n".join([*header, *pins, ""]))


def shortened(pin: str) -> str:
    """Returns `NAME==VERSION ; CONDITIONS` without the conditions that always hold."""
    package, _, marker = pin.partition(" ; ")
    conditions = [each for each in marker.split(" and ") if each not in ("", *_ALWAYS)]
    return " ; ".join([package, " and ".join(conditions)] if conditions else [package])


if __name__ == "__main__":
    main(sys.argv[1])
