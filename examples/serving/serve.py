"""Serves an exported model to a web page, and to all who speak TensorFlow Serving's REST.

    python examples/serving/serve.py export/places
    curl -d '{"instances": ["Kyoto"]}' localhost:8501/v1/models/places:predict

It needs TensorFlow and nothing else: what `tf_largeout` exported runs without `tf_largeout`.
Of TensorFlow Serving's REST it has `POST /v1/models/NAME:predict` in both forms, without
`{"b64": ...}`, and `GET /v1/models/NAME`. The page at `/` asks that, and `GET /classes?ids=4,7`
for the texts of the answer. It is an example: put a real server before strangers.
"""

import argparse
import json
import pathlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import tensorflow as tf

PAGE = pathlib.Path(__file__).with_name("index.html")
LARGEST_REQUEST = 1 << 20


class RefusedError(Exception):
    """A request that gets an error: its HTTP status and a text."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class ServedModel:
    """The newest version in a folder of exports.

    Args:
        folder: Has a folder for each version, named by its number. Its own name is the model's.
    """

    def __init__(self, folder):
        folder = pathlib.Path(folder).resolve()
        versions = [int(one.name) for one in folder.iterdir() if one.name.isdecimal()]
        if not versions:
            raise SystemExit(f"{folder} has no folder of a version, such as {folder}/1.")
        self.name, self.version = folder.name, max(versions)
        path = folder / str(self.version)
        self.signatures = tf.saved_model.load(str(path)).signatures
        texts = path / "assets.extra" / "classes.txt"
        self.texts = texts.read_text("utf-8").split("\n")[:-1] if texts.exists() else []

    def predict(self, request):
        """The answer to a request, both as TensorFlow Serving's REST has them."""
        if not isinstance(request, dict) or ("instances" in request) == ("inputs" in request):
            raise RefusedError(400, 'the request must have one of "instances" and "inputs"')
        name = request.get("signature_name", "serving_default")
        if name not in self.signatures:
            has = ", ".join(self.signatures)
            raise RefusedError(400, f"no signature {name!r}; the model has: {has}")
        signature = self.signatures[name]
        specs = signature.structured_input_signature[1]
        in_rows = "instances" in request
        values = _columns(request["instances"], specs) if in_rows else request["inputs"]
        if not isinstance(values, dict):
            values = {_single(specs): values}
        try:
            found = signature(**_tensors(values, specs))
        except tf.errors.OpError as error:
            raise RefusedError(400, error.message) from None
        outputs = {key: value.numpy().tolist() for key, value in sorted(found.items())}
        if not in_rows:
            return {"outputs": outputs}
        rows = zip(*outputs.values(), strict=True)
        return {"predictions": [dict(zip(outputs, row, strict=True)) for row in rows]}

    def texts_of(self, ids):
        """The texts of classes, by their ids as a comma-separated text."""
        places = [one for one in ids.split(",") if one]
        if not all(one.isdecimal() for one in places):
            raise RefusedError(400, f"ids must be numbers with commas; received: {ids!r}")
        return {one: self.texts[int(one)] for one in places if int(one) < len(self.texts)}


def _single(specs):
    if len(specs) > 1:
        raise RefusedError(400, f"inputs must be an object with values for {sorted(specs)}")
    return next(iter(specs))


def _columns(rows, specs):
    """The values of each input, from rows that have one or all of them."""
    if not isinstance(rows, list):
        raise RefusedError(400, '"instances" must be a list of rows')
    if not rows or not isinstance(rows[0], dict):
        return rows
    if any(not isinstance(row, dict) or row.keys() != rows[0].keys() for row in rows):
        raise RefusedError(400, f"each row must have the same inputs, of {sorted(specs)}")
    return {key: [row[key] for row in rows] for key in rows[0]}


def _tensors(values, specs):
    if values.keys() != specs.keys():
        raise RefusedError(400, f"inputs must be {sorted(specs)}; received: {sorted(values)}")
    tensors = {}
    for name, spec in specs.items():
        try:
            tensors[name] = tf.constant(values[name], spec.dtype)
            fits = spec.shape.is_compatible_with(tensors[name].shape)
        except (TypeError, ValueError, OverflowError):
            fits = False
        if not fits:
            needed = f"{spec.dtype.name} of shape {spec.shape}"
            received = json.dumps(values[name])[:80]
            raise RefusedError(400, f"input {name!r} must be {needed}; received: {received}")
    return tensors


class Handler(BaseHTTPRequestHandler):
    """Answers one connection. The server has the `model`."""

    protocol_version = "HTTP/1.1"  # connections are kept
    disable_nagle_algorithm = True  # else an answer waits 40 ms for a packet of the asker

    def do_GET(self):
        url, model = urlsplit(self.path), self.server.model
        if url.path == "/":
            self._send(200, PAGE.read_bytes(), "text/html; charset=utf-8")
        elif url.path == "/classes":
            ids = parse_qs(url.query).get("ids", [""])[0]
            self._answer(lambda: model.texts_of(ids))
        elif url.path == f"/v1/models/{model.name}":
            status = {"version": str(model.version), "state": "AVAILABLE"}
            self._answer(lambda: {"model_version_status": [status]})
        else:
            self._answer(self._not_found)

    def do_POST(self):
        try:
            size = int(self.headers["Content-Length"])
        except (TypeError, ValueError):
            size = -1
        if not 0 <= size <= LARGEST_REQUEST:
            self.close_connection = True  # what follows would be read as the next request
            text = f"a request needs a Content-Length of at most {LARGEST_REQUEST}"
            self._send_json(413 if size > 0 else 411, {"error": text})
            return
        body = self.rfile.read(size)
        right = self.path == f"/v1/models/{self.server.model.name}:predict"
        self._answer((lambda: self._predict(body)) if right else self._not_found)

    def _predict(self, body):
        try:
            request = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise RefusedError(400, f"the request is no JSON: {error}") from None
        return self.server.model.predict(request)

    def _not_found(self):
        name = self.server.model.name
        text = f"nothing at {self.path}; the model is at /v1/models/{name}:predict"
        raise RefusedError(404, text)

    def _answer(self, find):
        try:
            self._send_json(200, find())
        except RefusedError as error:
            self._send_json(error.status, {"error": str(error)})

    def _send_json(self, status, answer):
        body = json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace")
        self._send(status, body, "application/json; charset=utf-8")

    def _send(self, status, body, content_type):
        try:
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the page has asked something newer

    def log_message(self, *arguments):
        """Silent: a page asks at every letter."""


class Server(ThreadingHTTPServer):
    """An HTTP server with one model."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address, model):
        super().__init__(address, Handler)
        self.model = model


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", help="folder of the versions, as export.py made it")
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 for other machines too")
    parser.add_argument("--port", type=int, default=8501, help="0 takes one that is free")
    options = parser.parse_args(arguments)
    model = ServedModel(options.folder)
    server = Server((options.host, options.port), model)
    port = server.server_address[1]
    print(f"{model.name}, version {model.version}: http://{options.host}:{port}/", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


if __name__ == "__main__":
    main()
