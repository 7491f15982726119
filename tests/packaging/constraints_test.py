"""The Makefile installs only packages whose versions are pinned."""

import importlib.metadata
import re

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from build_tools.constraints import FILE, shortened
from build_tools.requirements import IN_VENV, IN_VENV_JAX
from tests.source_tree import ROOT


def pins():
    """Returns the pinned version of each package for this Python, by canonical name."""
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    found = [one for one in map(Requirement, lines) if applies(one, "")]
    versions = {canonicalize_name(one.name): str(one.specifier) for one in found}
    assert len(versions) == len(found)  # never two for one Python
    return versions


def installed(requirements):
    """Returns the names of all installed packages that these need, directly or not."""
    present = {canonicalize_name(one.name) for one in importlib.metadata.distributions()}
    seen, waiting = set(), [Requirement(one) for one in requirements]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        for extra in {"", *one.extras} if name in present else ():
            if (name, extra) not in seen:
                seen.add((name, extra))
                needs = map(Requirement, importlib.metadata.requires(name) or [])
                waiting += [need for need in needs if applies(need, extra)]
    return {name for name, _ in seen}


def applies(requirement, extra):
    """Returns whether this Python, and this extra of the package, has the requirement."""
    return not requirement.marker or requirement.marker.evaluate({"extra": extra})


def test_each_package_that_the_makefile_installs_is_pinned():
    found, pinned = installed(IN_VENV), pins()
    assert {"tensorflow-cpu", "wrapt", "pluggy"} <= found
    # .venv_jax has no other packages than these and those of .venv.
    found |= {Requirement(one).name for one in IN_VENV_JAX} | {"jaxlib", "scipy"}
    missing = sorted(found - pinned.keys())
    assert not missing, f"not in {FILE}; run `make constraints`: {missing}"
    assert all(re.fullmatch(r"==[\w.]+", version) for version in pinned.values())


def test_all_rules_for_the_virtual_environment_use_the_pins():
    lines = (ROOT / "Makefile").read_text().splitlines()
    own = [line for line in lines if "$(BIN)/python -m pip install" in line]
    assert own == [line for line in lines if line.startswith("PIP_INSTALL := ")]
    for_jax = [line for line in lines if "$(VENV_JAX)/bin/python -m pip install" in line]
    assert len(for_jax) == 1
    assert all("-c $(CONSTRAINTS)" in line for line in own + for_jax)


@pytest.mark.parametrize(
    ("pin", "expected"),
    [
        ("a==1 ; python_full_version < '3.14' and sys_platform == 'linux'", "a==1"),
        (
            "a==1 ; python_full_version >= '3.11' and python_full_version < '3.14'",
            "a==1 ; python_full_version >= '3.11'",
        ),
        ("a==1", "a==1"),
    ],
)
def test_conditions_that_always_hold_are_left_out(pin, expected):
    assert shortened(pin) == expected
