"""Exports over gRPC: TensorFlow Serving's client with a stand-in for its server."""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.serving import models
from tf_largeout import serving
from tf_largeout.retrieval import InvertedFileIndex

grpc = pytest.importorskip("grpc", reason="needs the extra runtimes")
apis = pytest.importorskip("tensorflow_serving.apis", reason="needs the extra runtimes")

from tensorflow_serving.apis import (  # noqa: E402
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

CALLERS, CALLS = 32, 8
SERVER = pathlib.Path(__file__).with_name("prediction_service.py")
SERVED = ["large", "indexed", "strings", "several_inputs"]


class Client:
    """A client of one model of a server."""

    def __init__(self, name, port):
        self.name = name
        channel = grpc.insecure_channel(f"localhost:{port}")
        self.stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def predict(self, inputs, signature="serving_default", name=None):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = name or self.name
        request.model_spec.signature_name = signature
        for key, value in inputs.items():
            request.inputs[key].CopyFrom(tf.make_tensor_proto(value))
        outputs = self.stub.Predict(request, timeout=60).outputs
        return {key: tf.make_ndarray(value) for key, value in outputs.items()}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Returns for each model a `Client` of its own server, and the expected results."""
    folder, clients, processes = tmp_path_factory.mktemp("served"), {}, []
    bare = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    for name in SERVED:
        kind = "large" if name == "indexed" else name
        model, index = models.new_model(kind), None
        if name == "indexed":
            layer = model.layers[-1]
            index = InvertedFileIndex(num_probes=10**6)
            index.build(layer.class_embeddings(), layer.bias)
        serving.export(model, folder / name / "2", k=2, index=index)
        serving.export(model, folder / name / "10", k=models.K, index=index)
        arguments = [sys.executable, SERVER, name, folder / name]
        process = subprocess.Popen(
            arguments, stdout=subprocess.PIPE, text=True, env=bare, cwd="/"
        )
        processes.append(process)
        clients[name] = process, models.logits_of(model, kind), models.MODELS[kind][1]
    try:
        yield {
            name: (Client(name, process.stdout.readline().strip()), logits, inputs)
            for name, (process, logits, inputs) in clients.items()
        }
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("name", SERVED)
def test_requests_over_the_network_give_the_classes_of_the_model(name, served):
    client, logits, inputs = served[name]
    models.assert_same(client.predict(inputs), models.best(logits))
    exclude = models.excluded(logits)
    filtered = {**inputs, "k": np.int32(4), "exclude": exclude}
    answer = client.predict(filtered, "top_k")
    models.assert_same(answer, models.best(logits, 4, exclude))


@pytest.mark.parametrize("batch", [1, 3, models.BATCH, 200])
def test_batches_of_any_size_have_results(batch, served):
    client, logits, inputs = served["large"]
    rows = np.arange(batch) % models.BATCH
    answer = client.predict({"features": inputs["features"][rows]})
    models.assert_same(answer, models.best(logits[rows]))


def test_inputs_with_defaults_can_be_omitted(served):
    client, logits, inputs = served["large"]
    models.assert_same(client.predict(inputs, "top_k"), models.best(logits))


def test_the_metadata_have_the_names_of_inputs_and_outputs(served):
    client = served["large"][0]
    request = get_model_metadata_pb2.GetModelMetadataRequest()
    request.model_spec.name = "large"
    request.metadata_field.append("signature_def")
    response = client.stub.GetModelMetadata(request, timeout=60)
    found = get_model_metadata_pb2.SignatureDefMap()
    response.metadata["signature_def"].Unpack(found)
    assert set(found.signature_def["top_k"].inputs) == {"features", "k", "exclude"}
    assert set(found.signature_def["serving_default"].outputs) == {"scores", "ids"}


@pytest.mark.parametrize(
    ("inputs", "keywords", "code", "message"),
    [
        ({"features": models.X[:, :3]}, {}, "INVALID_ARGUMENT", "shape"),
        ({"features": models.X.astype("float64")}, {}, "INVALID_ARGUMENT", "must be float32"),
        ({}, {}, "INVALID_ARGUMENT", "inputs must be"),
        ({"other": models.X}, {}, "INVALID_ARGUMENT", "inputs must be"),
        ({"features": models.X}, {"signature": "no"}, "INVALID_ARGUMENT", "serving_default"),
        ({"features": models.X}, {"name": "no"}, "NOT_FOUND", "no model 'no'"),
    ],
    ids=["width", "dtype", "nothing", "name", "signature", "model"],
)
def test_invalid_requests_raise_an_error_and_the_server_continues(
    inputs, keywords, code, message, served
):
    client, logits, right = served["large"]
    with pytest.raises(grpc.RpcError, match=message) as error:
        client.predict(inputs, **keywords)
    assert error.value.code() == getattr(grpc.StatusCode, code)
    models.assert_same(client.predict(right), models.best(logits))


def test_concurrent_callers_get_their_own_results(served):
    client, logits, inputs = served["large"]

    def call(caller):
        milliseconds = []
        for _ in range(CALLS):
            start = time.perf_counter()
            rows = [caller % models.BATCH]
            answer = client.predict({"features": inputs["features"][rows]})
            milliseconds.append(1e3 * (time.perf_counter() - start))
            models.assert_same(answer, models.best(logits[rows]))
        return milliseconds

    with concurrent.futures.ThreadPoolExecutor(CALLERS) as pool:
        times = np.concatenate(list(pool.map(call, range(CALLERS))))
    p50, p99 = np.quantile(times, [0.5, 0.99])
    print(f"{CALLERS} callers: p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    assert len(times) == CALLERS * CALLS
