"""How much of the package runs while a training step is traced."""

import pathlib
import sys
import threading

import keras
import numpy as np
import pytest

import tf_largeout as tflo

FOLDER = pathlib.Path(tflo.__file__).parent


def functions_of_first_step(sampler):
    """Returns the functions of the package that the first step calls: (module, name, line)."""
    layers = [keras.Input([8]), keras.layers.Dense(8), tflo.layers.LargeOutput(1000, sampler)]
    model = keras.Sequential(layers)
    model.compile(
        tflo.optimizers.LazyAdam(),
        tflo.losses.SampledSoftmaxLoss(),
        metrics=[tflo.metrics.PrecisionAtK(1)],
    )
    found = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(FOLDER)):
            module = str(pathlib.Path(code.co_filename).relative_to(FOLDER))
            found.add((module, code.co_name, code.co_firstlineno))

    threading.setprofile(note)  # of the thread in which the optimizer is built
    sys.setprofile(note)
    try:
        model.train_on_batch(np.ones([4, 8], "float32"), np.arange(4))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return found


@pytest.mark.parametrize(
    ("sampler", "most_modules", "most_functions"),
    [(tflo.samplers.UniformSampler, 25, 130), (tflo.samplers.InvertedFileSampler, 30, 160)],
)
def test_a_step_runs_few_functions_in_few_modules(sampler, most_modules, most_functions):
    found = functions_of_first_step(sampler(64))
    modules = {module for module, _, _ in found}
    assert len(modules) <= most_modules, sorted(modules)
    assert len(found) <= most_functions, sorted(found)
