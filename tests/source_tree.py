"""The files of the project, for the tests that read its source."""

import ast
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "tf_largeout"
CUSTOM_OPS = ROOT / "custom_ops"

# Methods of Keras and TensorFlow, not public, that classes of a file may override and call.
KERAS_OVERRIDES = {
    "tf_largeout/layers/class_output.py": {"_checkpoint_adapter"},
    "tf_largeout/layers/large_output.py": {"_trackable_children"},
    "tf_largeout/jax/optimizers.py": {"_apply_weight_decay", "_clip_gradients"},
    "tf_largeout/optimizers/row_sparse.py": {
        "_all_reduce_sum_gradients",
        "_apply_weight_decay",
        "_clip_gradients",
        "_lookup_dependency",
        "_trackable_children",
    },
}


def each_of(paths):
    """Makes one test of a check of one path. Its failure names every path that fails."""

    def decorate(check):
        def test():
            failures = []
            for path in paths:
                try:
                    check(path)
                except AssertionError as error:
                    failures.append(str(error))
            assert not failures, "\n".join(failures)

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate


def python_files():
    """Returns the modules of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def program_files():
    """Returns the modules of benchmarks/ and lab/, which import the package."""
    return sorted(path for top in ("benchmarks", "lab") for path in (ROOT / top).rglob("*.py"))


def cpp_files(*floors):
    """Returns the C++ and CUDA files of the floors (folders of custom_ops), or of all."""
    folders = [CUSTOM_OPS / floor for floor in floors] or [CUSTOM_OPS]
    found = [path for folder in folders for path in folder.rglob("*.*")]
    return sorted(path for path in found if path.suffix in (".h", ".cc", ".cu", ".cuh"))


def name(path):
    """Returns the path of a file from the root of the project."""
    return str(path.relative_to(ROOT))


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


@functools.cache
def imports(path):
    """Returns all that a module imports when it runs.

    `from a import b` counts as both a and a.b.
    """
    found = set()
    tree = parsed(path)
    for_types = {
        node
        for statement in ast.walk(tree)
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING"
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def sub_package(path):
    """Returns the sub-package, or module at the top of the package, that a file is in."""
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imported_sub_packages(path):
    """Returns which other sub-packages a file of the package imports."""
    parts = [module.split(".") for module in imports(path)]
    found = {part[1] for part in parts if part[0] == "tf_largeout" and len(part) > 1}
    return {one for one in found if is_sub_package(one)} - {sub_package(path)}


def is_sub_package(name):
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").exists()


def cpp_code_lines(path):
    """How many lines of a C++ file are code: not comments, docs of ops or blank lines."""
    text = re.sub(r'R"doc\(.*?\)doc"', '""', path.read_text(), flags=re.DOTALL)
    stripped = (line.strip() for line in text.splitlines())
    return sum(1 for line in stripped if line and not line.startswith(("//", "/*")))


def includes(path):
    """Returns what a C++ file includes: [(header, whether in quotes)]."""
    found = re.findall(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', path.read_text(), re.MULTILINE)
    return [(header, mark == '"') for mark, header in found]
