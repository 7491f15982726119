"""`examples/serving`: a model of names is exported, served and asked."""

import json
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from examples.serving import export
from examples.serving.name_encoder import NameEncoder
from tests.examples.tiny_dataset import TinyDataset
from tf_largeout import datasets
from tf_largeout.datasets import place_names

SERVER = Path(export.__file__).with_name("serve.py")
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
    """With rows for all features that a name has: the layer hashes to no fewer."""

    vocabulary_size = place_names.VOCABULARY_SIZE
    encode = staticmethod(place_names.encode)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Where a server of the example answers."""
    folder = tmp_path_factory.mktemp("export") / "places"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets, "load", lambda *_, **__: Names())
        export.main(["--epochs", "6", "--out", str(folder)])
    command = [sys.executable, SERVER, folder, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield server.stdout.readline().split()[-1]
    finally:
        server.kill()
        server.communicate()


def ask(address, path, request=None):
    body = None if request is None else json.dumps(request).encode()
    with urllib.request.urlopen(f"{address}{path}", body, timeout=60) as response:
        return response.read().decode()


def predict(address, request):
    return json.loads(ask(address, "v1/models/places:predict", request))


def test_the_layer_hashes_names_as_the_data_set_does():
    np.testing.assert_array_equal(NameEncoder()(tf.constant(NAMES)), place_names.encode(NAMES))


@pytest.mark.slow
def test_the_server_finds_the_place_of_a_name(address):
    best = predict(address, {"instances": ["Village 7", "Village 9"]})["predictions"]
    assert [row["ids"][0] for row in best] == [7, 9] and len(best[0]["ids"]) == 5
    texts = json.loads(ask(address, "classes?ids=7,9"))
    assert texts == {"7": "Village 7", "9": "Village 9"}
    request = {"name": ["Village 7"], "k": 2, "exclude": [[7]]}
    found = predict(address, {"signature_name": "top_k", "inputs": request})["outputs"]
    assert found["ids"][0] == best[0]["ids"][1:3]


@pytest.mark.slow
def test_the_page_is_served(address):
    assert "/v1/models/places:predict" in ask(address, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "request_",
    [{}, {"instances": [3]}, {"instances": ["a"], "signature_name": "no"}, [1]],
    ids=str,
)
def test_wrong_requests_are_told_and_the_server_lives_on(request_, address):
    with pytest.raises(urllib.error.HTTPError) as error:
        predict(address, request_)
    assert error.value.code == 400 and json.loads(error.value.read())["error"]
    assert predict(address, {"instances": ["Village 3"]})["predictions"][0]["ids"][0] == 3
