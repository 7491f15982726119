"""The arrows of the design, on the Python side. Each failure says what to do instead."""

import ast
import re

from tests.source_tree import (
    PACKAGE,
    ROOT,
    each_of,
    imported_sub_packages,
    imports,
    name,
    parsed,
    python_files,
    sub_package,
)

# Who may import whom. Losses know no samplers, samplers no losses; layers joins
# them. Add a line for a new sub-package; do not lengthen a line to silence a test.
ARROWS = {
    "__init__": None,  # anything
    "version": set(),
    "types": set(),
    "arguments": set(),
    "keras_internals": set(),
    "sampled_values": set(),
    "ops": {"types", "version"},
    "variables": {"types"},
    "classes": {"arguments", "keras_internals", "ops", "types", "variables"},
    "tags": {"classes", "ops", "sampled_values", "types"},
    "search": {"arguments", "ops", "types", "variables"},
    "samplers": {
        "arguments",
        "classes",
        "ops",
        "sampled_values",
        "search",
        "types",
        "variables",
    },
    "losses": {"arguments", "sampled_values", "tags", "types"},
    "metrics": {"arguments", "tags", "types"},
    "optimizers": {"arguments", "keras_internals", "ops", "types", "variables"},
    "keras_names": {"losses", "metrics", "optimizers"},
    "layers": {
        "arguments",
        "classes",
        "distribute",
        "keras_internals",
        "ops",
        "samplers",
        "search",
        "tags",
        "types",
        "variables",
    },
    "join_models": {"layers"},
    "resizing": {"classes", "layers", "metrics", "types", "variables"},
    "retrieval": {"arguments", "classes", "ops", "search", "tags", "types"},
    "serving": {"arguments", "layers", "retrieval", "tags", "version"},
    "datasets": {"arguments"},
    "distribute": {"arguments", "ops"},
    "benchmarks": None,  # anything
}
PRIVATE = ("tensorflow.python", "tensorflow.compat", "keras.src", "keras.legacy", "tf_keras")
PRIVATE_NAMES = re.compile(r"\btf\.(compat|python|raw_ops)\b|\bkeras\.(src|legacy)\b")
LONGEST_FILE, LONGEST_FUNCTION = 300, 40
# Files and folders whose public functions are not annotated yet: take out what is, here and
# in pyproject.toml. `benchmarks` is no public sub-package, nor are the parsers of data sets.
NOT_ANNOTATED = (
    "tf_largeout/benchmarks",
    "tf_largeout/datasets/linux_callees",
    "tf_largeout/datasets/place_names",
    "tf_largeout/datasets/xmc",
)

each_module = each_of(python_files())


@each_module
def test_imports_follow_the_arrows_of_the_design(path):
    group = sub_package(path)
    assert group in ARROWS, f"Say in ARROWS what tf_largeout.{group} may import."
    allowed = ARROWS[group]
    if allowed is None:
        return
    wrong = imported_sub_packages(path) - allowed
    assert not wrong, (
        f"{name(path)} imports {sorted(wrong)}; tf_largeout.{group} may import "
        f"{sorted(allowed)}. Pass what it needs as an argument, or join the two in "
        "tf_largeout.layers: a sampler and a loss meet only at SampledValues."
    )


def test_no_sub_packages_import_each_other_in_a_circle():
    graph = {}
    for path in python_files():
        graph.setdefault(sub_package(path), set()).update(imported_sub_packages(path))
    while graph:
        leaves = {group for group, needs in graph.items() if not needs & set(graph)}
        assert leaves, f"{sorted(graph)} import each other in a circle."
        graph = {group: needs for group, needs in graph.items() if group not in leaves}


@each_module
def test_only_the_ops_touch_the_library(path):
    if sub_package(path) in ("ops", "__init__"):
        return
    wrong = {one for one in imports(path) if one.startswith("tf_largeout.ops.library")}
    wrong |= {one for one in ("load_op_library", "gen_ops") if one in path.read_text()}
    assert not wrong, (
        f"{name(path)} uses {sorted(wrong)}: write a function in tf_largeout/ops/X_ops.py "
        "and call that."
    )


@each_of([*python_files(), *sorted((ROOT / "examples").rglob("*.py"))])
def test_only_the_public_interfaces_of_tensorflow_and_keras_are_used(path):
    code = "\n".join(line.split("#")[0] for line in path.read_text().splitlines())
    wrong = {one for one in imports(path) if one.startswith(PRIVATE)}
    wrong |= {found.group() for found in PRIVATE_NAMES.finditer(code)}
    assert not wrong, (
        f"{name(path)} uses {sorted(wrong)}, which may change with any release: use what "
        "tf.* and keras.* document, or write an op."
    )


@each_module
def test_public_classes_and_functions_have_docstrings(path):
    public = (ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in parsed(path).body if isinstance(node, public)]
    missing = [
        node.name
        for node in nodes
        if not node.name.startswith("_")
        and not ast.get_docstring(node)
        and not _is_overload(node)
    ]
    assert not missing, (
        f"{name(path)}: {missing} need a docstring: what it does, Args with shapes, Returns, "
        "Raises, the paper."
    )


@each_of([path for path in python_files() if not name(path).startswith(NOT_ANNOTATED)])
def test_public_functions_and_methods_have_complete_annotations(path):
    missing = {
        function.name: arguments
        for function in _public_functions(parsed(path).body)
        if (arguments := _without_annotation(function))
    }
    assert not missing, (
        f"{name(path)}: annotate {missing} (`return` is the result). Tensors are `tf.Tensor`; "
        "tf_largeout/types.py has names for what many take, such as `TensorLike`; `Any` only "
        "where Keras gives no better."
    )


@each_module
def test_files_and_functions_are_short_enough_to_read(path):
    lines = len(path.read_text().splitlines())
    assert lines <= LONGEST_FILE, f"{name(path)} has {lines} lines: split it by what it does."
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef):
            length = _body_length(node)
            assert length <= LONGEST_FUNCTION, (
                f"{name(path)}: {node.name} has {length} lines: give its steps names."
            )


def test_every_module_of_ops_has_a_test_of_its_name():
    expected = {path.stem for path in (PACKAGE / "ops").glob("*_ops.py")}
    tested = {
        path.stem.removesuffix("_test") for path in (ROOT / "tests/ops").glob("*_test.py")
    }
    missing = sorted(expected - tested)
    assert not missing, f"Write tests/ops/X_test.py, with a numpy oracle, for {missing}."


def _body_length(function):
    """The lines of a function without its docstring and signature."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


def _is_overload(node):
    """Whether it is one of the signatures of a function that follows and has a docstring."""
    names = [getattr(decorator, "id", None) for decorator in node.decorator_list]
    return "overload" in names


def _public_functions(nodes):
    """The functions of a module, and the methods of its classes, that others may call."""
    for node in nodes:
        is_public = not node.name.startswith("_") if hasattr(node, "name") else False
        if isinstance(node, ast.ClassDef) and is_public:
            yield from _public_functions(node.body)
        elif isinstance(node, ast.FunctionDef):
            if is_public or node.name in ("__init__", "__call__"):
                yield node


def _without_annotation(function):
    """The names of the arguments, and "return", that have no annotation."""
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    missing = [one.arg for one in arguments if one is not None and one.annotation is None]
    missing += ["return"] if function.returns is None else []
    return [name for name in missing if name not in ("self", "cls")]
