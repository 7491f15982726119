"""The architecture of the Python code. Each failure says what to do instead."""

import ast
import functools
import re
import tokenize

from tests.source_tree import (
    KERAS_OVERRIDES,
    PACKAGE,
    ROOT,
    each_of,
    imported_sub_packages,
    imports,
    name,
    parsed,
    program_files,
    python_files,
    sub_package,
)

# Which sub-package may import which. Losses do not know about samplers, and samplers do not
# know about losses; layers connects them. Add a line for a new sub-package. Do not lengthen a
# line to silence a test.
ARROWS = {
    "__init__": None,  # anything
    "version": set(),
    "types": set(),
    "arguments": set(),
    "atomic_file": set(),
    "lazy_names": set(),
    "wrong_arguments": set(),
    "keras_backend": set(),
    "layer_arguments": {"arguments"},
    "class_counts": {"arguments"},
    "sampler_arguments": {"arguments"},
    "sampling_tables": set(),
    "checks": {"keras_internals"},
    "keras_internals": set(),
    "sampled_values": set(),
    "ops": {
        "checks",
        "keras_backend",
        "keras_internals",
        "sampling_tables",
        "types",
        "version",
    },
    "variables": {"keras_internals", "types"},
    "classes": {
        "arguments",
        "checks",
        "keras_internals",
        "layer_arguments",
        "ops",
        "types",
        "variables",
    },
    "steps": {
        "arguments",
        "checks",
        "classes",
        "keras_internals",
        "ops",
        "sampled_values",
        "types",
        "variables",
    },
    "search": {"arguments", "checks", "ops", "types", "variables"},
    "samplers": {
        "lazy_names",
        "arguments",
        "checks",
        "class_counts",
        "classes",
        "keras_internals",
        "ops",
        "sampled_values",
        "sampler_arguments",
        "search",
        "types",
        "variables",
        "wrong_arguments",
    },
    "losses": {
        "lazy_names",
        "arguments",
        "checks",
        "keras_internals",
        "keras_names",
        "sampled_values",
        "steps",
        "types",
        "wrong_arguments",
    },
    "metrics": {
        "arguments",
        "checks",
        "keras_internals",
        "steps",
        "types",
        "wrong_arguments",
    },
    "optimizers": {
        "checks",
        "keras_internals",
        "ops",
        "optimizer_settings",
        "types",
        "variables",
    },
    "keras_names": set(),
    "optimizer_settings": {"arguments", "wrong_arguments"},
    "layers": {
        "lazy_names",
        "layer_arguments",
        "arguments",
        "checks",
        "classes",
        "keras_internals",
        "keras_names",
        "ops",
        "samplers",
        "search",
        "steps",
        "types",
        "variables",
        "wrong_arguments",
    },
    # Methods of papers use base classes of the sub-packages, and no sub-package uses them.
    "papers": {
        "arguments",
        "checks",
        "class_counts",
        "classes",
        "keras_internals",
        "layers",
        "losses",
        "ops",
        "retrieval",
        "sampled_values",
        "samplers",
        "search",
        "steps",
        "types",
        "variables",
        "wrong_arguments",
    },
    "callbacks": {
        "arguments",
        "atomic_file",
        "checks",
        "classes",
        "keras_internals",
        "layers",
        "steps",
    },
    "conversion": {"keras_internals", "layers", "losses", "optimizers", "types"},
    "joined_models": {"layers", "steps"},
    "resizing": {"arguments", "classes", "keras_internals", "layers", "types", "variables"},
    "retrieval": {
        "lazy_names",
        "arguments",
        "atomic_file",
        "checks",
        "classes",
        "ops",
        "search",
        "steps",
        "types",
        "wrong_arguments",
    },
    "serving": {"arguments", "checks", "classes", "layers", "retrieval", "steps", "version"},
    "datasets": {"arguments", "atomic_file"},
    "distribute": {"arguments", "ops", "variables"},
    # Only modules that do not import TensorFlow.
    "jax": {
        "arguments",
        "class_counts",
        "keras_backend",
        "keras_names",
        "layer_arguments",
        "optimizer_settings",
        "sampler_arguments",
        "sampling_tables",
        "version",
        "wrong_arguments",
    },
}
NOT_INSTALLED = {"benchmarks", "build_tools", "examples", "lab", "tests"}
PRIVATE = ("tensorflow.python", "tensorflow.compat", "keras.src", "keras.legacy", "tf_keras")
PRIVATE_NAMES = re.compile(r"\btf\.(compat|python|raw_ops)\b|\bkeras\.(src|legacy)\b")
# The one module that may use internals of Keras and TensorFlow. Do not add another one.
INTERNALS = "tf_largeout/keras_internals.py"
# Those that the modules for JAX use, which cannot import that one. tests/jax runs them.
INTERNALS_ON_JAX = {
    "keras.src.backend.common.stateless_scope.in_stateless_scope",
    "keras.src.backend.common.symbolic_scope.in_symbolic_scope",
    "keras.src.backend.common.variables.AutocastScope",
    "keras.src.backend.get_keras_mask",
    "keras.src.backend.set_keras_mask",
    "keras.src.losses",
    "keras.src.metrics",
    # Losses look for labels in the frame of `fit`, and give a model its weights after an error.
    "variable._value",
    "frame.f_back",
    "frame.f_code",
    "frame.f_globals",
    "frame.f_locals",
    "sys._getframe",
    # Slots of optimizers and their variables; the layer `Embedding` reads rows by ids.
    "by_rows._largeout_by_rows",
    "hasattr(call, '_largeout_by_rows')",
    "self._convert_to_tensor",
    "self._dtype",
    "self._get_variable_index",
    "self._track_variable",
    "self._trainable_variables",
    "self._use_weight_decay",
    "variable._layout",
    # `predict` leaves the weights in the state of a failed step.
    "getattr(self, '_jax_state', None)",
}
# What leads to internals: frames, module globals, names of internal objects.
INTERNAL_ATTRIBUTES = {
    "__code__",
    "__globals__",
    "__internal__",
    "currentframe",
    "f_back",
    "f_code",
    "f_globals",
    "f_locals",
    "walk_stack",
}
INTERNAL_STRINGS = re.compile(r"^_keras_|^scratch_graph|^ALL_OBJECTS_DICT$|^__wrapped__$")
DOCUMENTED = {"_asdict", "_exit", "_fields", "_replace"}  # of named tuples and `os`
LONGEST_FILE, LONGEST_FUNCTION = 600, 60  # lines of code
LONGEST_JAX = 2_200  # lines of code of tf_largeout/jax

each_module = each_of(python_files())
each_module_and_program = each_of([*python_files(), *program_files()])


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
def test_the_package_does_not_import_what_is_not_installed(path):
    wrong = {one for one in imports(path) if one.partition(".")[0] in NOT_INSTALLED}
    assert not wrong, f"{name(path)} imports {sorted(wrong)}, which are not in the wheel."


@each_module
def test_only_the_ops_touch_the_library(path):
    if sub_package(path) in ("ops", "__init__") or path.stem.endswith("_ops"):
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
    if path.parent.name == "stock":  # Ops that take handles have no other public function.
        wrong -= {"tf.raw_ops"}
    allowed = [f"{one}." for one in INTERNALS_ON_JAX] if path.parent.name == "jax" else []
    wrong = {one for one in wrong if not any(use.startswith(f"{one}.") for use in allowed)}
    assert not wrong, (
        f"{name(path)} uses {sorted(wrong)}, which may change with any release: use what "
        "tf.* and keras.* document, or write an op."
    )


@each_module
def test_only_one_module_uses_internals_of_tensorflow_and_keras(path):
    if name(path) == INTERNALS:
        return
    overridden = KERAS_OVERRIDES.get(name(path), set())
    found = internals_used(path, own_private_names() - all_overrides() | overridden)
    found -= INTERNALS_ON_JAX if path.parent.name == "jax" else set()
    assert not found, (
        f"{name(path)} uses internals of other packages: {sorted(found)}. Use a public "
        f"interface, or write a function with a test in {INTERNALS}."
    )


def test_what_the_modules_for_jax_import_needs_no_tensorflow():
    groups = {"jax"}
    while new := set().union(*(ARROWS[group] for group in groups)) - groups:
        groups |= new
    for path in python_files():
        if sub_package(path) in groups:
            wrong = {one for one in imports(path) if one.startswith(("tensorflow", "tf_keras"))}
            assert not wrong, f"{name(path)} imports {sorted(wrong)}, which JAX's users lack."
    (shared,) = (
        ast.literal_eval(node.value.func.value).split()
        for node in parsed(PACKAGE / "jax/__init__.py").body
        if isinstance(node, ast.Assign) and node.targets[0].id == "_SHARED"
    )
    assert {*shared} == groups


def test_the_modules_for_jax_stay_short():
    lines = {path.name: code_lines(path) for path in PACKAGE.glob("jax/*.py")}
    assert sum(lines.values()) <= LONGEST_JAX, (
        f"{lines}: share code that knows no backend, or leave the part to TensorFlow."
    )


def test_the_search_for_internals_finds_them(tmp_path):
    uses = (
        "inspect.currentframe().f_back.f_locals",
        "get.__globals__",
        "tf.__internal__",
        "model._loss_tracker",
        "super()._clip_gradients(grads)",
        "getattr(y, '_keras_mask', None)",
        "hasattr(layer, '_inbound_nodes')",
        "graph.name == 'scratch_graph_3'",
    )
    for number, use in enumerate(uses):
        path = tmp_path / f"uses_{number}.py"
        path.write_text(use)
        assert internals_used(path, own_private_names() - all_overrides()), use
    path = tmp_path / "allowed.py"
    path.write_text("self._logits\n'_keras'\nstate._asdict()\ngetattr(self, '_update')")
    assert not internals_used(path, own_private_names())


@each_module_and_program
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


@each_module
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


# Where something other than a tensor must wait: the state of samplers, and servers.
WAITING = {
    "checks.py",
    "losses/base.py",
    "optimizers/row_sparse.py",
    "ops/stock/factored_output.py",
    "ops/stock/inverted_file.py",
}


@each_of(path for path in python_files() if str(path.relative_to(PACKAGE)) not in WAITING)
def test_checks_are_part_of_the_data(path):
    assert "control_dependencies" not in path.read_text(), (
        "TensorFlow may drop what an operation waits for. Read the tensor that `checks.passed` "
        "or `checks.finite` returns."
    )


@each_module_and_program
def test_files_and_functions_are_short_enough_to_read(path):
    lines = len(path.read_text().splitlines())
    if lines > LONGEST_FILE:  # because it takes long to count lines of code
        lines = code_lines(path)
    assert lines <= LONGEST_FILE, (
        f"{name(path)} has {lines} lines of code: split it by concept."
    )
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef):
            length = _body_length(node)
            assert length <= LONGEST_FUNCTION, (
                f"{name(path)}: {node.name} has {length} lines: give its steps names."
            )


@each_of((PACKAGE / "papers").rglob("*.py"))
def test_methods_of_papers_use_only_what_the_guide_on_extending_names(path):
    guide = (ROOT / "docs/guides/extending.md").read_text()
    documented = set(re.findall(r"`(?:tflo\.\w+\.)?(\w+)[`(]", guide))
    nodes = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom)]
    of_core = [node for node in nodes if not node.module.startswith("tf_largeout.papers")]
    of_core = [node for node in of_core if node.module.startswith("tf_largeout")]
    wrong = {one.name for node in of_core for one in node.names} - documented
    assert not wrong, (
        f"{name(path)} imports {sorted(wrong)}, which docs/guides/extending.md does not name. "
        "Use the base classes, or add what they lack to its last table."
    )


@each_of(path for path in (PACKAGE / "papers").iterdir() if path.name[0] != "_")
def test_a_method_of_papers_has_tests_and_notes_by_its_name(path):
    notes = re.findall("lab/\\w+", ast.get_docstring(parsed(path / "__init__.py")))
    assert notes and (ROOT / "tests" / "papers" / path.name).is_dir()
    row = f"| `{path.name}` |"
    rows = [line for line in (ROOT / "lab/README.md").read_text().splitlines() if row in line]
    found = re.findall(r"\((\w+)/README.md\)", *rows)
    assert [f"lab/{one}" for one in found] == notes, f"{path.name} in lab/README.md"
    missing = [one for one in notes if not (ROOT / one / "README.md").exists()]
    assert not missing, f"{name(path)}: {missing} are not notes."


def test_every_module_of_ops_has_a_test_of_its_name():
    modules = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*_ops.py")]
    tests = [ROOT / "tests" / path.with_name(f"{path.stem}_test.py") for path in modules]
    missing = sorted(name(path) for path in tests if not path.exists())
    assert not missing, f"Write {missing}, with a numpy oracle."


def test_only_lines_of_code_count(tmp_path):
    path = tmp_path / "short.py"
    path.write_text('"""Two\nlines."""\n\n# A comment.\nX = """1\n2"""  # here\n')
    assert code_lines(path) == 2


def internals_used(path, own):
    """Returns what a file uses of the internals of other packages.

    Args:
        path: The file.
        own: Private names that it may use.
    """
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Attribute):
            is_private = _is_private(node.attr) and node.attr not in own | DOCUMENTED
            if is_private or node.attr in INTERNAL_ATTRIBUTES:
                found.add(ast.unparse(node))
        elif isinstance(node, ast.Call) and len(node.args) > 1:
            attribute = getattr(node.args[1], "value", None)
            is_access = getattr(node.func, "id", "") in _ATTRIBUTE_FUNCTIONS
            if is_access and _is_private(attribute) and attribute not in own:
                found.add(ast.unparse(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if INTERNAL_STRINGS.search(node.value):
                found.add(repr(node.value))
    return found


@functools.cache
def own_private_names():
    """Returns the private names that the package defines."""
    found = set()
    for path in python_files():
        if name(path) == INTERNALS:
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if ast.unparse(node.value) in ("self", "cls"):
                    found.add(node.attr)
    return {one for one in found if _is_private(one)}


def all_overrides():
    return set().union(*KERAS_OVERRIDES.values())


def code_lines(path):
    """The number of lines of a file with code: not docstrings, comments or blank lines."""
    lines = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in _NO_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(parsed(path)):
        is_scope = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if is_scope and ast.get_docstring(node) is not None:
            lines -= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


_ATTRIBUTE_FUNCTIONS = ("delattr", "getattr", "hasattr", "setattr")
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


def _is_private(name):
    return isinstance(name, str) and re.fullmatch("_[a-zA-Z]\\w*", name) is not None


def _body_length(function):
    """Returns the lines of a function without its docstring and signature."""
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
    """Returns the names of the arguments, and "return", that have no annotation."""
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    missing = [one.arg for one in arguments if one is not None and one.annotation is None]
    missing += ["return"] if function.returns is None else []
    return [name for name in missing if name not in ("self", "cls")]
