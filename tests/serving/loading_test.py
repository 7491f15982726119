"""Exports loaded without `tf_largeout` give the results of the model."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from tests.serving import host, models, probe
from tests.serving.list_scores_test import Lists
from tests.slow import slow_but
from tf_largeout import serving
from tf_largeout.ops import library

HOSTED = ["large", "hash_tables", "tied", "factored", "hierarchical", "several_inputs"]
CUSTOM = ["large", "tied", "factored", "hierarchical"]
# The others differ from "large" only by weights that no signature reads, by their class, or are
# exported by other tests.
SHORT = ["large", "hierarchical", "several_inputs", "sequences"]


@pytest.fixture(scope="module")
def program():
    return host.build()


@pytest.fixture(scope="module")
def exported(tmp_path_factory, request):
    """Returns a folder with an export of each tested model, and the logits of each."""
    folder, logits = tmp_path_factory.mktemp("exports"), {}
    run_slow = request.config.getoption("run_slow")
    for name in models.MODELS if run_slow else SHORT:
        model = models.new_model(name)
        logits[name] = models.logits_of(model, name)
        settings = {"k": models.K, "class_names": [f"class {one}" for one in range(models.N)]}
        serving.export(model, folder / name / "1", **settings)
        if name in (CUSTOM if run_slow else ["large"]):
            serving.export(model, folder / f"{name}_custom", ops="custom", **settings)
    return folder, logits


def filtered(name, logits):
    """Returns the inputs of the signature `top_k`."""
    exclude = models.excluded(logits)
    return {**models.MODELS[name][1], "k": np.int32(4), "exclude": exclude}


def assert_right(answer, answer_of_top_k, logits):
    models.assert_same(answer, models.best(logits))
    models.assert_same(answer_of_top_k, models.best(logits, 4, models.excluded(logits)))


@pytest.fixture(scope="module")
def answers_of_python(exported, request):
    """Returns the results of each export in a process that imports only TensorFlow.

    The short suite uses this process; its sessions without Python do not have our ops.
    """
    (folder, logits), calls = exported, {}
    for name in logits:
        inputs = models.MODELS[name][1]
        calls[name, "default"] = f"{name}/1", "serving_default", inputs
        calls[name, "top_k"] = f"{name}/1", "top_k", filtered(name, logits[name])
    (folder / "calls").write_bytes(pickle.dumps(calls))
    if not request.config.getoption("run_slow"):
        return probe.answers(folder)
    bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, probe.__file__, folder],
        capture_output=True,
        text=True,
        env=bare,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    return pickle.loads((folder / "answers").read_bytes())


@pytest.mark.parametrize("name", slow_but(SHORT, models.MODELS))
def test_tensorflow_alone_gives_the_classes_of_the_model(name, exported, answers_of_python):
    answers = answers_of_python[name, "default"], answers_of_python[name, "top_k"]
    assert_right(*answers, exported[1][name])
    assert b"Largeout" not in (exported[0] / name / "1" / "saved_model.pb").read_bytes()


@pytest.mark.slow  # compiles a program
@pytest.mark.parametrize("name", HOSTED)
def test_a_session_without_python_gives_the_classes_of_the_model(name, exported, program):
    folder, inputs = exported[0] / name / "1", models.MODELS[name][1]
    answer = host.run(program, folder, "serving_default", inputs)
    of_top_k = host.run(program, folder, "top_k", filtered(name, exported[1][name]))
    assert_right(answer, of_top_k, exported[1][name])


@pytest.mark.slow
def test_a_session_without_python_looks_strings_up(exported, program):
    folder, logits = exported[0] / "strings" / "1", exported[1]["strings"]
    inputs = {
        "title": models.WORDS[:4]
    }  # The program splits its input at spaces, so strings cannot be empty.
    answer = host.run(program, folder, "serving_default", inputs)
    models.assert_same(answer, models.best(logits[:4]))


@pytest.mark.slow
def test_a_session_without_python_searches_an_index(tmp_path, program):
    model, index = models.new_model("large"), Lists(3, shortest=5)
    serving.export(model, tmp_path / "1", k=models.K, index=index)
    reached = index.reached(model.layers[0](models.X).numpy())
    logits = np.where(reached, models.logits_of(model, "large"), -np.inf)
    answer = host.run(program, tmp_path / "1", "serving_default", {"features": models.X})
    of_top_k = host.run(program, tmp_path / "1", "top_k", filtered("large", logits))
    assert_right(answer, of_top_k, logits)


@pytest.mark.slow  # compiles a program
@pytest.mark.parametrize("name", CUSTOM)
def test_a_session_with_our_library_runs_our_ops(name, exported, program):
    folder, inputs = exported[0] / f"{name}_custom", models.MODELS[name][1]
    ours = [library.LOADED]
    answer = host.run(program, folder, "serving_default", inputs, ours)
    of_top_k = host.run(program, folder, "top_k", filtered(name, exported[1][name]), ours)
    assert_right(answer, of_top_k, exported[1][name])


def test_without_our_library_the_error_names_the_op_and_the_export_has_remedies(
    exported, program
):
    folder = exported[0] / "large_custom"
    done = host.start(program, folder, "serving_default", {"features": models.X})
    assert done.returncode == 1
    assert "NOT_FOUND: Op type not registered 'LargeoutClassTopK'" in done.stderr
    advice = (folder / "assets.extra" / "README").read_text()
    for way_out in ("import tf_largeout", "//:largeout_ops", 'ops="core"'):
        assert way_out in advice


def test_a_wrong_input_raises_an_error(exported, program):
    folder = exported[0] / "large" / "1"
    done = host.start(program, folder, "serving_default", {"features": models.X[:, :3]})
    assert done.returncode == 1
    assert "INVALID_ARGUMENT" in done.stderr


def test_an_example_that_is_not_finite_changes_no_other_example(exported, program):
    folder, logits = exported[0] / "sequences" / "1", exported[1]["sequences"]
    steps = models.MODELS["sequences"][1]["steps"].copy()
    steps[1, 2, 4], steps[3, 0, 0] = np.nan, np.inf
    answer = host.run(program, folder, "serving_default", {"steps": steps})
    expected = models.best(logits)
    for place in ((1, 2), (3, 0)):
        expected["scores"][place], expected["ids"][place] = -np.inf, -1
    models.assert_same(answer, expected)


@pytest.mark.slow
def test_empty_batches_and_exclusion_of_almost_all_classes_are_supported(exported, program):
    folder, logits = exported[0] / "large" / "1", exported[1]["large"]
    answer = host.run(program, folder, "serving_default", {"features": models.X[:0]})
    assert answer["ids"].shape == answer["scores"].shape == (0, models.K)
    everything = np.arange(models.N - 2)[np.newaxis]
    inputs = {"features": models.X, "k": np.int32(models.N), "exclude": everything}
    answer = host.run(program, folder, "top_k", inputs)
    excluded = np.repeat(everything, models.BATCH, axis=0)
    models.assert_same(answer, models.best(logits, models.N, excluded))
    assert (answer["ids"][:, 2:] == -1).all()
    done = host.start(program, folder, "top_k", {**inputs, "k": np.int32(models.N + 1)})
    assert done.returncode == 1 and "from 0 to the number of classes, 211" in done.stderr
