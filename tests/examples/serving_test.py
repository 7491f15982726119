"""Tests of `examples/serving`: exports, serves and queries a model of names."""

import numpy as np
import pytest
import tensorflow as tf

from examples.serving import export
from examples.serving.name_encoder import NameEncoder
from tests.examples import example_server
from tests.examples.tiny_dataset import TinyDataset
from tf_largeout import datasets
from tf_largeout.datasets import place_names

NAMES = [
    "Kyoto",
    "  New\u3000York ",
    "Санкт-Петербург",
    "STRASSE straße",
    "ﬁne",
    "",
    "京",
    "x" * 300,
]


class Names(TinyDataset):
    """A dataset with all features of names, because the layer cannot hash to fewer."""

    vocabulary_size = place_names.VOCABULARY_SIZE
    encode = staticmethod(place_names.encode)


def predict(server, request):
    status, answer = server.predict(request)
    assert status == 200, answer
    return answer


def test_the_layer_hashes_names_like_the_dataset():
    np.testing.assert_array_equal(NameEncoder()(tf.constant(NAMES)), place_names.encode(NAMES))


@pytest.mark.slow
def test_the_server_finds_the_place_of_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "load", lambda *_, **__: Names())
    export.main(["--epochs", "6", "--out", str(tmp_path / "places")])
    with example_server.running(tmp_path / "places") as server:
        best = predict(server, {"instances": ["Village 7", "Village 9"]})["predictions"]
        assert [row["ids"][0] for row in best] == [7, 9] and len(best[0]["ids"]) == 5
        assert [row["names"][0] for row in best] == ["Village 7", "Village 9"]
        request = {"name": ["Village 7"], "k": 2, "exclude": [[7]]}
        found = predict(server, {"signature_name": "top_k", "inputs": request})["outputs"]
        assert found["ids"][0] == best[0]["ids"][1:3]
        status, answer = server.predict({"instances": [3]})
        assert status == 400 and "name.0: Input should be a valid string" in answer["error"]
