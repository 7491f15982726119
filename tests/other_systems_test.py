"""With stock operations, nothing in the package and the examples depends on Linux."""

import ast
import os
import re
import subprocess
import sys

from tests.source_tree import ROOT, each_of, name, parsed, python_files
from tf_largeout import arguments

EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))
# Modules that macOS or Windows lack.
MODULES = ("fcntl", "grp", "multiprocessing", "posix", "pwd", "resource", "termios")
FUNCTIONS = re.compile(
    r"os\.(fork\w*|exec\w+|sched_\w+|sysconf|get[eg]?[ug]id|kill\w*|mkfifo|symlink|link|rename"
    r"|posix_\w+|pread\w*|pwrite\w*|O_\w+|uname|wait\w*)|signal\.(SIGKILL|SIGUSR\d|alarm)"
    r"|tempfile\.NamedTemporaryFile"
)
FILES = re.compile(r"/(proc|sys|dev|tmp|etc|usr)/")
# What may be used nevertheless, by file, and why it does no harm.
GUARDED = {
    "tf_largeout/arguments.py": {"os.sysconf", "/sys/"},  # only if it exists
    # Servers need the op library, which is for Linux.
    "tf_largeout/distribute/server.py": {"os.execv", "/proc/"},
}

PROGRAM = """
import os, sys
import keras, numpy as np, tensorflow as tf

def closed(function):
    def call(*paths):
        held = {os.path.realpath(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd")}
        assert not held & {os.path.realpath(path) for path in paths}, "open on Windows"
        return function(*paths)
    return call

def writable(function, get_flags, mask):
    def call(number):
        assert get_flags(number) & mask, "Windows needs write access"
        return function(number)
    return call

import fcntl
sync = writable(os.fsync, lambda number: fcntl.fcntl(number, fcntl.F_GETFL), os.O_RDWR)
os.replace, os.fsync = closed(os.replace), sync
for one in MODULES:
    sys.modules[one] = None
for one in dir(os):
    if FUNCTIONS.fullmatch(f"os.{one}") and not one.startswith("O_"):  # Python needs these
        delattr(os, one)
sys.platform = "win32"

import tf_largeout as tflo
from tf_largeout.ops import library

assert library.OPS == "stock"
x, y = np.eye(12, dtype="float32"), np.arange(12)
sampler = tflo.samplers.InvertedFileSampler(8, num_hard=4, start_step=0)
head = tflo.layers.LargeOutput(12, sampler)
model = keras.Sequential([keras.Input([12]), head])
model.compile(tflo.optimizers.LazyAdam(0.1), tflo.losses.SampledSoftmaxLoss())
losses = model.fit(x, y, epochs=20, verbose=0).history["loss"]
assert losses[-1] < 0.5 * losses[0] and model.evaluate(x, y, verbose=0) < 1
index = tflo.retrieval.BruteForceIndex().build(head.class_embeddings())
path = os.path.join(sys.argv[1], "index")
index.save(path)
scores, ids = tflo.retrieval.BruteForceIndex.load(path).top_k(x, 1)
assert (np.ravel(ids) == y).all()
model.save(os.path.join(sys.argv[1], "model.keras"))
"""


@each_of([*python_files(), *EXAMPLES])
def test_the_package_uses_nothing_that_only_linux_has(path):
    used = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            used |= {one.name for one in node.names if one.name.split(".")[0] in MODULES}
        elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in MODULES:
            used.add(node.module)
        elif isinstance(node, ast.Attribute) and FUNCTIONS.fullmatch(ast.unparse(node)):
            used.add(ast.unparse(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            used |= {found.group() for found in FILES.finditer(node.value)}
    wrong = used - GUARDED.get(name(path), set())
    assert not wrong, (
        f"{name(path)} uses {sorted(wrong)}, which macOS or Windows lack: use another way, or "
        "check that it exists and add it to GUARDED."
    )


@each_of([*python_files(), *EXAMPLES])
def test_text_files_have_an_encoding(path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Call) and _opens_text(node):
            assert any(one.arg == "encoding" for one in node.keywords), (
                f"{name(path)}:{node.lineno}: pass `encoding`; on Windows it is not UTF-8."
            )


def _opens_text(call):
    """Returns whether a call is `open`, `read_text` or `write_text` without an encoding."""
    function = ast.unparse(call.func)
    if function.endswith(".read_text"):
        return not call.args
    if function.endswith(".write_text"):
        return len(call.args) < 2
    modes = [one.value for one in call.args[1:2] if isinstance(one, ast.Constant)]
    return function == "open" and not any("b" in str(mode) for mode in modes)


def test_the_package_trains_without_what_only_linux_has(tmp_path):
    head = f"import re\nMODULES = {MODULES}\nFUNCTIONS = re.compile({FUNCTIONS.pattern!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", head + PROGRAM, str(tmp_path)],
        env={**os.environ, "LARGEOUT_OPS": "stock", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_memory_is_unlimited_where_it_is_unknown(monkeypatch):
    monkeypatch.delattr(arguments.os, "sysconf")
    assert arguments.memory_of_machine() == sys.maxsize
