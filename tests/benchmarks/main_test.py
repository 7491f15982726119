import importlib
import pkgutil

import benchmarks
from benchmarks.__main__ import BENCHMARKS


def test_the_table_has_each_program():
    names = {module.name for module in pkgutil.iter_modules(benchmarks.__path__)}
    modules = {
        name: importlib.import_module(f"benchmarks.{name}") for name in names - {"__main__"}
    }
    programs = {name for name, module in modules.items() if hasattr(module, "main")}
    assert programs == set(BENCHMARKS)
