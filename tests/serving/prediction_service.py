"""A stand-in for TensorFlow Serving: `python prediction_service.py NAME FOLDER`.

TensorFlow Serving is not available from pip. This program implements its gRPC interface,
`PredictionService.Predict` and `GetModelMetadata`, for one model, by TensorFlow alone: the
highest version in FOLDER is loaded into a session, as the server does it, and inputs that a
signature has defaults for may be left out. It makes no batches, and does not look for new
versions. It prints the port that it listens on.
"""

import concurrent.futures
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import grpc
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

_THREADS = 8
_CODES = {code.value[0]: code for code in grpc.StatusCode}


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """Answers for one model."""

    def __init__(self, name, folder):
        self._name = name
        versions = [path.name for path in pathlib.Path(folder).iterdir() if path.name.isdigit()]
        self._version = max(versions, key=int)
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            self._loaded = tf.compat.v1.saved_model.load(
                self._session, ["serve"], f"{folder}/{self._version}"
            )

    def Predict(self, request, context):
        self._require_model(request.model_spec, context)
        signature = self._signature(request.model_spec.signature_name, context)
        inputs = {**signature.defaults, **request.inputs}
        if set(inputs) != set(signature.inputs):
            _refuse(context, f"inputs must be {sorted(signature.inputs)}, got {sorted(inputs)}")
        names = request.output_filter or list(signature.outputs)
        outputs = {name: signature.outputs[name].name for name in names}
        try:
            feeds = {
                signature.inputs[name].name: tf.make_ndarray(value)
                for name, value in inputs.items()
            }
            for name, value in inputs.items():
                if value.dtype != signature.inputs[name].dtype:
                    expected = tf.as_dtype(signature.inputs[name].dtype).name
                    _refuse(context, f"input {name} must be {expected}")
            found = self._session.run(outputs, feeds)
        except tf.errors.OpError as error:
            context.abort(_CODES[error.error_code], error.message)
        except ValueError as error:
            _refuse(context, str(error))
        response = predict_pb2.PredictResponse()
        for name, value in found.items():
            response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
        response.model_spec.name, response.model_spec.version.value = (
            self._name,
            int(self._version),
        )
        return response

    def GetModelMetadata(self, request, context):
        self._require_model(request.model_spec, context)
        signatures = get_model_metadata_pb2.SignatureDefMap()
        for name, signature in self._loaded.signature_def.items():
            signatures.signature_def[name].CopyFrom(signature)
        response = get_model_metadata_pb2.GetModelMetadataResponse()
        response.metadata["signature_def"].Pack(signatures)
        return response

    def _require_model(self, spec, context):
        if spec.name != self._name:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no model {spec.name!r} is served")

    def _signature(self, name, context):
        name = name or "serving_default"
        if name not in self._loaded.signature_def:
            _refuse(
                context, f"no signature {name!r} among {sorted(self._loaded.signature_def)}"
            )
        return self._loaded.signature_def[name]


def _refuse(context, message):
    context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)


def main(name, folder):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(_THREADS))
    service = PredictionService(name, folder)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(service, server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    assert not any(one.startswith("tf_largeout") for one in sys.modules)
    print(port, flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
