"""Loading models in a process forked from one that has used TensorFlow."""

import functools
import multiprocessing

import keras
import numpy as np
import pytest

from tests.slow import slow_but
from tf_largeout import layers

N, DIM = 300, 4
HEADS = {
    "LargeOutput": lambda: layers.LargeOutput(N),
    "LargeOutput in shards": lambda: layers.LargeOutput(N, num_shards=2),
    "HierarchicalOutput": lambda: layers.HierarchicalOutput(N),
    "FactoredOutput": lambda: layers.FactoredOutput(N, 1.0),
    "EmbeddingBag": lambda: layers.EmbeddingBag(N, DIM),
}
SAMPLERS = ("uniform", "log_uniform", "top_k", "softmax", "inverted_file", "lsh", "kernel_tree")
HEADS |= {name: functools.partial(layers.LargeOutput, N, name) for name in SAMPLERS}


def _load(path, expected):
    loaded = keras.models.load_model(path)
    np.testing.assert_array_equal(loaded.layers[-1].get_weights()[0], expected)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # since Python 3.12
@pytest.mark.parametrize("name", slow_but(["LargeOutput"], HEADS))
def test_a_forked_process_loads_a_model(name, tmp_path):
    head = HEADS[name]()
    dtype = "int32" if name == "EmbeddingBag" else "float32"
    model = keras.Sequential([keras.Input([DIM], dtype=dtype), head])
    model.save(tmp_path / "model.keras")
    arguments = (tmp_path / "model.keras", head.get_weights()[0])
    process = multiprocessing.get_context("fork").Process(target=_load, args=arguments)
    process.start()
    process.join(timeout=20)
    process.kill()
    assert process.exitcode == 0
