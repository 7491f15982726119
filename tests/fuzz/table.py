"""The random calls of each op, by name. A new op needs a function in one of these modules."""

import importlib
import inspect
import pkgutil

import tests.fuzz.cases as cases_of_ops
from tf_largeout import ops
from tf_largeout.ops.library import gen_ops

MODULES = [
    importlib.import_module(f"tests.fuzz.cases.{module.name}")
    for module in pkgutil.iter_modules(cases_of_ops.__path__)
]


def expected_names():
    """Returns the public functions of tf_largeout.ops, and the ops that have none."""
    public = {name for name, value in vars(ops).items() if inspect.isfunction(value)}
    raw = {name for name in vars(gen_ops) if name.startswith("largeout_")}
    raw = {name for name in raw if not name.endswith("_eager_fallback")}
    return public | {name for name in raw if name.removeprefix("largeout_") not in public}


def cases():
    """Returns the functions that make random `Call`s, by the name of the op."""
    names = expected_names()
    found = {name: value for module in MODULES for name, value in vars(module).items()}
    return {name: case for name, case in sorted(found.items()) if name in names}
