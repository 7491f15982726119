"""Runs the sharded example in a subprocess, because `connect` cannot be undone."""

import subprocess
import sys

import keras
import numpy as np
import pytest

from tests.source_tree import ROOT

ON_A_TINY_DATASET = """
import runpy, sys
from tests.examples.tiny_dataset import TinyDataset
from tf_largeout import datasets
datasets.load = lambda *_, **__: TinyDataset(several_labels=False)
sys.argv = ["sharded.py", "--epochs", "3", "--out", sys.argv[1]]
runpy.run_path("examples/sharded.py", run_name="__main__")
"""


@pytest.mark.slow
def test_example_trains_on_two_servers_and_saves_a_file_for_one_machine(tmp_path):
    command = [sys.executable, "-c", ON_A_TINY_DATASET, f"{tmp_path}/sharded.keras"]
    printed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "Two servers on this machine" in printed and "Exact, on 5,120" in printed
    for number in (0, 1):
        assert f"on /job:ps/replica:0/task:{number}/device:CPU:0" in printed
    model = keras.models.load_model(tmp_path / "sharded.keras")
    assert model.layers[-1].num_shards == 2
    assert np.isfinite(model.layers[-1].class_embeddings()).all()
