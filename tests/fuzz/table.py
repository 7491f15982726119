"""The random calls of each op, by name. A new op needs a function in one of these modules."""

import importlib
import inspect
import pkgutil

import tests.fuzz.cases as cases_of_ops
from tf_largeout import ops
from tf_largeout.ops.library import gen_ops
from tf_largeout.papers.factored import factored_output_ops
from tf_largeout.papers.kernel_tree import kernel_tree_ops
from tf_largeout.papers.lsh import hash_ops, lsh_ops

OPS_OF_PAPERS = (factored_output_ops, hash_ops, kernel_tree_ops, lsh_ops)
MODULES = [
    importlib.import_module(f"tests.fuzz.cases.{module.name}")
    for module in pkgutil.iter_modules(cases_of_ops.__path__)
]


def expected_names():
    """Returns the functions of tf_largeout.ops and of papers, and the ops that have none."""
    public = {name for name, value in vars(ops).items() if inspect.isfunction(value)}
    raw = {name for name in vars(gen_ops) if name.startswith("largeout_")}
    raw = {name for name in raw if not name.endswith("_eager_fallback")}
    of_papers = {name for module in OPS_OF_PAPERS for name in vars(module)}
    public |= {name for name in of_papers if f"largeout_{name}" in raw}
    return public | {name for name in raw if name.removeprefix("largeout_") not in public}


def cases():
    """Returns the functions that make random `Call`s, by the name of the op."""
    names = expected_names()
    found = {name: value for module in MODULES for name, value in vars(module).items()}
    return {name: case for name, case in sorted(found.items()) if name in names}
