"""Tests of `examples/serving/serve.py` with valid, invalid and random requests."""

import json
import re
import shutil
import socket
import subprocess
import time

import numpy as np
import pytest

from examples.serving.served_model import ServedModel
from tests.examples import example_server
from tests.serving import models
from tf_largeout import serving

NAMES = [f"class «{number}»" for number in range(models.N)]
ROW = models.X[0].tolist()
TIMEOUT = 3.0  # Seconds to send a request.


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Returns a server, and the logits of its model."""
    folder = tmp_path_factory.mktemp("exports") / "numbers"
    model = models.new_model("large")
    serving.export(model, folder / "2", k=2)
    serving.export(model, folder / "10", k=models.K, class_names=NAMES)
    with example_server.running(folder, "--timeout", str(TIMEOUT), "--max-batch", "8") as one:
        yield one, models.logits_of(model, "large")


@pytest.fixture
def server(served):
    """Returns the server, and checks after the test that it still answers correctly."""
    yield served[0]
    status, answer = served[0].predict({"instances": [ROW]})
    assert status == 200
    models.assert_same(answer["predictions"][0], models.best(served[1][0]))


def best_of(logits, k, exclude=None):
    """Returns the ids and names that a response should have."""
    ids = models.best(logits, k, exclude)["ids"]
    return ids.tolist(), np.array([*NAMES, ""])[ids].tolist()


def test_both_forms_of_a_request_are_answered_with_names(server, served):
    ids, names = best_of(served[1], models.K)
    for instances in (models.X.tolist(), [{"features": row} for row in models.X.tolist()]):
        status, answer = server.predict({"instances": instances})
        assert status == 200
        assert [row["ids"] for row in answer["predictions"]] == ids
        assert [row["names"] for row in answer["predictions"]] == names
    for inputs in (models.X.tolist(), {"features": models.X.tolist()}):
        status, answer = server.predict({"inputs": inputs})
        assert status == 200 and answer["outputs"]["names"] == names


def test_k_and_exclude(server, served):
    exclude = models.excluded(served[1])
    for k in (0, 3, models.N):
        inputs = {"features": models.X.tolist(), "k": k, "exclude": exclude.tolist()}
        status, answer = server.predict({"signature_name": "top_k", "inputs": inputs})
        ids, names = best_of(served[1], k, exclude)
        assert status == 200 and answer["outputs"]["names"] == names
        assert answer["outputs"]["ids"] == ids


def test_a_row_that_is_not_finite_has_no_names(server):
    status, answer = server.predict({"instances": [ROW, 8 * [np.nan]]})
    assert status == 200 and answer["predictions"][1]["names"] == models.K * [""]
    assert answer["predictions"][1]["scores"] == models.K * [None]


def test_the_pages_and_the_status(server):
    status, page = server.ask("GET", "/")
    assert status == 200 and "places" not in page
    description = json.loads(server.ask("GET", "/model")[1])
    inputs = {"features": {"dtype": "float32", "shape": [None, models.DIM]}}
    assert description == {"name": "numbers", "version": "10", "inputs": inputs}
    status = json.loads(server.ask("GET", "/v1/models/numbers")[1])
    assert status["model_version_status"] == [{"version": "10", "state": "AVAILABLE"}]
    assert server.ask("GET", "/docs")[0] == 200
    assert '"exclude"' in server.ask("GET", "/openapi.json")[1]


def test_an_export_with_custom_ops_is_refused(tmp_path, monkeypatch):
    def load(path):  # as without the ops, which are registered in this process
        raise RuntimeError("Op type not registered 'LargeoutClassTopK' in binary")

    (tmp_path / "1").mkdir()
    monkeypatch.setattr("tensorflow.saved_model.load", load)
    with pytest.raises(SystemExit, match="ops='custom'.*Export the model with ops='core'"):
        ServedModel(tmp_path)


def top_k(**inputs):
    inputs = {"features": [ROW], "k": 2, "exclude": [[1]], **inputs}
    return {"signature_name": "top_k", "inputs": inputs}


WRONG = {
    "no JSON": (b"{", "Invalid JSON"),
    "no UTF-8": (b'{"instances": ["\xff"]}', "Invalid JSON"),
    "nothing": ({}, 'one of "instances" and "inputs"'),
    "both": ({"instances": [ROW], "inputs": [ROW]}, 'one of "instances" and "inputs"'),
    "a list": ([1], "valid dictionary|be an object"),
    "255 brackets": (b'{"instances":' + 255 * b"[" + 255 * b"]" + b"}", "recursion limit"),
    "64 brackets": (b'{"instances":' + 64 * b"[" + 64 * b"]" + b"}", "valid number"),
    "30,000 brackets": (b'{"instances":' + 30_000 * b"[", "recursion limit"),
    "signature []": ({"instances": [ROW], "signature_name": []}, "signature_name: .* string"),
    "signature {}": ({"instances": [ROW], "signature_name": {}}, "signature_name: .* string"),
    "signature no": ({"instances": [ROW], "signature_name": "no"}, "serving_default, top_k"),
    "no rows": ({"instances": []}, r"features: must have the shape \(None, 8\)"),
    "instances a text": ({"instances": "abc"}, "instances: .* valid (list|array)"),
    "rows of others": ({"instances": [{"features": ROW}, {"other": ROW}]}, "same inputs"),
    "rows of both kinds": ({"instances": [{"features": ROW}, ROW]}, "same inputs"),
    "another input": ({"instances": [{"other": ROW}]}, "features: Field required"),
    "one input more": (top_k(other=1), "other: Extra inputs"),
    "width": ({"instances": [ROW[1:]]}, "at least 8 items"),
    "a text": ({"instances": [["1"] * 8]}, "valid number"),
    "a bool": ({"instances": [[True] * 8]}, "valid number"),
    "5,000 digits": (
        b'{"instances": [[' + b"7" * 5_000 + b",1,1,1,1,1,1,1]]}",
        "number|digits",
    ),
    "9 rows": ({"instances": [ROW] * 9}, "at most 8 items"),
    "k 10^10": (top_k(k=10**10), "k: .* less than or equal to 1000"),
    "k 2^63": (top_k(k=2**63), "k: .* less than or equal to 1000"),
    "k -1": (top_k(k=-1), "k: .* greater than or equal to 0"),
    "k 1.5": (top_k(k=1.5), "k: .* valid integer"),
    "k []": (top_k(k=[2]), "k: .* valid integer"),
    "k above all classes": (top_k(k=models.N + 1), "from 0 to the number of classes, 211"),
    "exclude of 9": (top_k(exclude=[[1] * 9]), "exclude.0: .* at most 8 items"),
    "exclude of no rows": (top_k(exclude=[]), "exclude: must have the shape"),
    "exclude for 2 rows": (top_k(exclude=[[1], [2]]), "one row per example"),
    "exclude of two lengths": (top_k(exclude=[[1], [2, 3]]), "exclude: .*non-rectangular"),
    "exclude 2^63": (top_k(exclude=[[2**63]]), "exclude.0.0: .* less than or equal to"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_invalid_request_is_reported(name, server):
    request, message = WRONG[name]
    before = server.peak_memory()
    status, answer = server.predict(request)
    assert status == 400 and list(answer) == ["error"]
    assert re.search(message, answer["error"]) and len(answer["error"]) < 700
    assert server.peak_memory() < before + 2**28


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/classes?ids=" + 5_000 * "7", 404),
        ("GET", "/" + 20_000 * "x", 404),
        ("GET", "/%00%ff", 404),
        ("GET", "/v1/models/other", 404),
        ("POST", "/v1/models/other:predict", 404),
        ("PUT", "/v1/models/numbers:predict", 405),
        ("POST", "/", 405),
    ],
)
def test_an_invalid_path_is_reported(method, path, status, server):
    found, text = server.ask(method, path, b"{}" if method == "POST" else None)
    assert found == status and json.loads(text)["error"]


def test_a_request_that_is_too_large_is_reported(server):
    status, answer = server.predict(b" " * (2**20 + 1))
    assert status == 413 and "1048576 bytes" in answer["error"]


def test_the_body_of_a_get_is_not_a_request(server):
    """A former version read it as the next request of the connection."""
    hidden = b"POST /hidden HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
    head = f"GET /model HTTP/1.1\r\nHost: a\r\nContent-Length: {len(hidden)}\r\n\r\n".encode()
    last = b"GET /v1/models/numbers HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    text = answers_to(server, head + hidden + last)
    assert text.count("HTTP/1.1 200 OK") == 2 and text.count("HTTP/1.1") == 2


def answers_to(server, sent, seconds=60):
    """Returns all responses of the server until it closes the connection."""
    host, port = server.host.split(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        connection.sendall(sent)
        while part := connection.recv(2**16):
            received += part
    return received.decode()


POST = b"POST /v1/models/numbers:predict HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (POST + b'{"inst', "408"),
        (b"", ""),
        (b"GET / HT", ""),
        (b"GET / HTTP/1.1\r\nA: a", ""),
    ],
    ids=["body", "nothing", "first line", "headers"],
)
def test_a_slow_client_is_disconnected(sent, status, server):
    start = time.monotonic()
    try:
        received = answers_to(server, sent)
    except ConnectionResetError:
        received = ""
    assert received[9:12] == status
    assert time.monotonic() - start < 4 * TIMEOUT


def random_value(random, depth=0):
    """Returns random JSON."""
    kinds = ["number", "number", "text", "constant", "row", "list", "object"]
    kind = random.choice(kinds if depth < 4 else kinds[:4])
    if kind == "number":
        return [0, 1, -1, 2.5, 1e39, 10**10, 2**63, 7**3000, 1e-300][random.integers(9)]
    if kind == "text":
        return ["", "top_k", "k", "\ud800", "\0", "é" * 40][random.integers(6)]
    if kind == "constant":
        return [None, True, False, np.nan, np.inf][random.integers(5)]
    if kind == "row":
        return random.normal(size=random.choice([7, 8, 8, 8, 9])).tolist()
    if kind == "list":
        return [random_value(random, depth + 1) for _ in range(random.integers(5))]
    keys = ["features", "k", "exclude", "instances", "inputs", "signature_name"]
    return {str(random.choice(keys)): random_value(random, depth + 1) for _ in range(3)}


def random_body(random):
    """Returns a request that may be invalid."""
    if random.random() < 0.3:
        return json.dumps(random_value(random)).encode()
    parts = top_k(features=[ROW] * random.integers(1, 10), k=int(random.integers(-1, 220)))
    parts["inputs"]["exclude"] = random.integers(-1, 220, [1, random.integers(9)]).tolist()
    changed = parts if random.random() < 0.3 else parts["inputs"]
    if random.random() < 0.7:
        changed[str(random.choice(list(changed)))] = random_value(random)
    body = bytearray(json.dumps(parts).encode())
    for _ in range(random.choice([0, 0, 0, 1, 3])):
        body[random.integers(len(body))] = random.integers(256)
    return bytes(body[: random.integers(len(body))]) if random.random() < 0.1 else bytes(body)


def random_head(random):
    """Returns the head of a request, and a body of random length."""
    method = random.choice(["GET", "POST", "HEAD", "PUT", "OPTIONS", "FOO", "\0"])
    paths = ["/", "/model", "/v1/models/numbers", "/v1/models/numbers:predict", "x", "/%zz?a=%"]
    length = random.choice(["0", "3", "-1", "1e9", "99999999999", 5_000 * "9"])
    body = random.choice(["", "abc", "{}\r\n\r\n"])
    version = random.choice(["HTTP/1.1", "HTTP/1.0", "HTTP/9", ""])
    lines = [f"{method} {random.choice(paths)} {version}", "Host: a", "Connection: close"]
    lines += [f"Content-Length: {length}"] * random.integers(3)
    return "\r\n".join([*lines, "", str(body)]).encode()


@pytest.mark.parametrize("count", [30, pytest.param(1_000, marks=pytest.mark.slow)])
def test_random_requests_are_all_answered(count, server):
    before, statuses, random = server.peak_memory(), [], np.random.default_rng(count)
    for _ in range(count):
        status, answer = server.predict(random_body(random))
        assert status in (200, 400) and ("error" in answer) == (status == 400)
        statuses.append(status)
    assert {200, 400} == {*statuses}
    assert server.peak_memory() < before + 2**28


@pytest.mark.slow
def test_random_heads_are_all_answered(server):
    random = np.random.default_rng(7)
    for _ in range(200):
        head = random_head(random)
        assert re.match(r"HTTP/1.1 [2-4]\d\d ", answers_to(server, head)), head


@pytest.mark.slow
def test_a_browser_shows_the_answers(server, served):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("needs chromium or google-chrome")
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--virtual-time-budget=5000",
        "--dump-dom",
    ]
    row = ",".join(map(str, ROW))
    address = f"{server.address}?features={row}"
    page = subprocess.run([*command, address], capture_output=True, text=True, timeout=60)
    best = best_of(served[1][0], models.K)[1]
    assert "numbers, version 10" in page.stdout and "8 float32 numbers" in page.stdout
    assert re.findall("class «[0-9]+»", page.stdout) == best
