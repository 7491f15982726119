"""Names of a package that are imported when they are first used."""

import importlib
import types
from typing import Any


def import_papers() -> types.ModuleType:
    """Imports `tf_largeout.papers`, which registers its classes by their names."""
    return importlib.import_module("tf_largeout.papers")


def papers_name(package: str, name: str) -> Any:
    """Returns a public name of `package` that `tf_largeout.papers` defines.

    The methods in `papers` are built on the base classes in `package`, so `package` cannot
    import them when it is imported itself.

    Raises:
        AttributeError: If `papers` does not define the name.
    """
    papers = import_papers()
    if name.startswith("_") or not hasattr(papers, name):
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(papers, name)
