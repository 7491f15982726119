"""Core exports in OpenVINO, ONNX Runtime and LiteRT, if the extra `runtimes` is installed."""

import importlib.util
import pickle
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.serving import models
from tests.serving.list_scores_test import Lists
from tests.source_tree import ROOT
from tf_largeout import layers, serving

# Required packages, and unsupported models; docs/guides/serving.md has the reasons.
RUNTIMES = {
    "openvino": (["openvino"], set()),
    "onnxruntime": (["onnxruntime", "tf2onnx"], set()),
    "ai_edge_litert": (["ai_edge_litert"], {"hierarchical"}),
}
KINDS = ["large", "tied", "factored", "hierarchical", "several_inputs", "sequences"]


def several_blocks():
    """Returns a model whose classes are scored in two blocks."""
    keras.utils.set_random_seed(5)
    head = layers.LargeOutput(70_000, bias_initializer="random_normal")
    return keras.Sequential([keras.Input([models.DIM]), head])


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Returns a folder with exports, their inputs, and the logits of the models."""
    folder, inputs, logits = tmp_path_factory.mktemp("exports"), {}, {}
    for name in KINDS:
        model, inputs[name] = models.new_model(name), models.MODELS[name][1]
        logits[name] = models.logits_of(model, name)
        serving.export(model, folder / name, k=models.K)
    model, inputs["several_blocks"] = several_blocks(), {"features": models.X}
    logits["several_blocks"] = model(models.X).numpy()
    serving.export(model, folder / "several_blocks", k=models.K)
    model, index, inputs["index"] = (
        models.new_model("large"),
        Lists(3, shortest=5),
        inputs["large"],
    )
    reached = index.reached(model.layers[0](models.X).numpy())
    logits["index"] = np.where(reached, logits["large"], -np.inf)
    serving.export(model, folder / "index", k=models.K, index=index)
    return folder, inputs, logits


def answers(runtime, folder, inputs):
    """Returns the results of a runtime by the name of the export."""
    (folder / "calls").write_bytes(pickle.dumps(inputs))
    command = [sys.executable, "-m", "tests.serving.runtimes", runtime, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return pickle.loads((folder / f"answers_{runtime}").read_bytes())


@pytest.fixture(params=RUNTIMES)
def runtime(request):
    """Returns the name of an installed runtime."""
    needed, _ = RUNTIMES[request.param]
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{missing} not installed: pip install -e '.[runtimes]'")
    return request.param


@pytest.mark.slow
def test_another_runtime_gives_the_classes_of_the_model(runtime, request):
    _, refused = RUNTIMES[runtime]
    exported = request.getfixturevalue("exported")  # Only if a runtime is installed.
    folder, inputs, logits = exported
    found = answers(runtime, folder, {n: v for n, v in inputs.items() if n not in refused})
    assert len(found) >= 6
    for name, answer in found.items():
        models.assert_same(answer, models.best(logits[name]))
