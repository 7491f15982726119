"""The targets of BUILD, built by Bazel, can be linked into a custom TensorFlow Serving."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from build_tools import bazel
from tests.serving import host, models
from tests.source_tree import ROOT
from tf_largeout import serving

OPS_IN_PYTHON = """
import sys
import tf_largeout as tflo
from tf_largeout.ops import library
assert str(library.LOADED) == sys.argv[1], library.LOADED
layer = tflo.layers.LargeOutput(5, embeddings_initializer="identity", use_bias=False)
layer.build([None, 5])
print(layer.top_k([[1.0, 5.0, 2.0, 4.0, 3.0]], 3)[1].numpy().tolist())
"""


@pytest.fixture(scope="module")
def built():
    """Returns the output of Bazel after building and running all tests."""
    if bazel.missing():
        pytest.skip(bazel.missing())
    command = [sys.executable, "-m", "build_tools.bazel"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_cpp_tests_pass_under_bazel(built):
    for name in bazel.TESTS:
        assert re.search(rf"^{re.escape(name)} +(\(cached\) )?PASSED", built, re.MULTILINE)


@pytest.mark.slow
def test_python_runs_the_ops_of_the_library(built):
    library = str(bazel.LIBRARY)
    done = subprocess.run(
        [sys.executable, "-c", OPS_IN_PYTHON, library],
        cwd=ROOT,
        env={**os.environ, "LARGEOUT_OPS_LIBRARY": library},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[[1, 3, 4]]\n", done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["large", "factored", "hierarchical"])
def test_a_server_with_the_ops_linked_in_runs_a_custom_export(built, name, tmp_path):
    model = models.new_model(name)
    serving.export(model, tmp_path / "1", k=models.K, ops="custom")
    answer = host.run(bazel.HOST, tmp_path / "1", "serving_default", {"features": models.X})
    logits = models.logits_of(model, name)
    models.assert_same(answer, models.best(logits))
    exclude = models.excluded(logits)
    filtered = {"features": models.X, "k": np.int32(4), "exclude": exclude}
    answer = host.run(bazel.HOST, tmp_path / "1", "top_k", filtered)
    models.assert_same(answer, models.best(logits, 4, exclude))


def test_without_bazel_the_error_has_instructions(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nowhere")
    assert bazel.main() == 1
    said = capsys.readouterr().err
    assert "bazel-4 is not on the PATH" in said
    assert "apt-get install --no-install-recommends bazel-bootstrap" in said
