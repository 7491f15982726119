"""Serves an exported model with a web page and with the REST API of TensorFlow Serving.

    python -m examples.serving.serve export/places
    curl -d '{"instances": ["Kyoto"]}' localhost:8501/v1/models/places:predict

`POST /v1/models/NAME:predict` accepts both formats of TensorFlow Serving, but not
`{"b64": ...}`. `GET /v1/models/NAME` returns the version. If the export has class names, a
response has `names` in addition to `ids` and `scores`. `/` is the web page, and `/docs`
describes the API.

It needs TensorFlow, FastAPI and uvicorn, but not `tf_largeout`, so it serves only exports with
`ops="core"`. It has no authentication and no TLS.
"""

import argparse
import asyncio
import contextlib
import functools
import os
import pathlib
import socket

import anyio.to_thread
import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.h11_impl import H11Protocol

from examples.serving.served_model import RefusedError, ServedModel

PAGE = pathlib.Path(__file__).with_name("index.html")
LARGEST_BODY = 2**20  # Bytes.
MOST_CONNECTIONS = 200  # Further connections get the status 503.


class TimedConnection(H11Protocol):
    """A connection that is closed if an exchange takes too long.

    An exchange lasts from the end of the previous one until the client has read the response.
    Without this limit, a client that sends or reads slowly would keep its connection forever.
    """

    def __init__(self, seconds, **kwargs):
        super().__init__(**kwargs)
        self._seconds = seconds

    def connection_made(self, transport):
        super().connection_made(transport)
        self._timer = self.loop.call_later(self._seconds, transport.abort)

    def on_response_complete(self):
        self._timer.cancel()
        self._timer = self.loop.call_later(self._seconds, self.transport.abort)
        super().on_response_complete()

    def connection_lost(self, error):
        self._timer.cancel()
        super().connection_lost(error)


async def read_body(request, seconds):
    """Reads the body of a request within the limits of size and time."""
    body = bytearray()

    async def read():
        async for part in request.stream():
            body.extend(part)
            if len(body) > LARGEST_BODY:
                raise HTTPException(413, f"a request may have at most {LARGEST_BODY} bytes")

    try:
        await asyncio.wait_for(read(), seconds)
    except asyncio.TimeoutError:
        text, headers = f"incomplete request after {seconds} seconds", {"Connection": "close"}
        raise HTTPException(408, text, headers) from None
    except ClientDisconnect:
        raise HTTPException(400, "the client has disconnected") from None
    return bytes(body)


def new_app(model, seconds):
    """Creates the application that serves `model`.

    Args:
        model: A `ServedModel`.
        seconds: Time limit for the body of a request.
    """
    app = FastAPI(title=f"Model {model.name}", version=str(model.version), redoc_url=None)
    # More would not be faster, because TensorFlow has its own threads.
    limiter = anyio.CapacityLimiter(os.cpu_count())
    content = {"application/json": {"schema": model.schema()}}

    def require(name):
        if name != model.name:
            raise HTTPException(404, f"unknown model; use /v1/models/{model.name}")

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    def page():
        return PAGE.read_text("utf-8")

    @app.get("/model")
    def description():
        return model.description()

    @app.get("/v1/models/{name}")
    def status(name: str):
        require(name)
        return {"model_version_status": [{"version": str(model.version), "state": "AVAILABLE"}]}

    @app.post(
        "/v1/models/{name}:predict",
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )
    async def predict(name: str, request: Request):
        # Parsed here, because curl and others send JSON with another Content-Type.
        body = await read_body(request, seconds)
        require(name)
        run = functools.partial(model.predict, body)
        try:
            text = await anyio.to_thread.run_sync(run, limiter=limiter)
        except RefusedError as error:
            raise HTTPException(400, str(error)) from None
        return Response(text, media_type="application/json")

    @app.exception_handler(AnyHTTPException)
    def refuse(request, error):
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    return app


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", help="folder of the versions, written by export.py")
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 serves other machines too")
    parser.add_argument("--port", type=int, default=8501, help="0 selects a free port")
    parser.add_argument(
        "--max-batch", type=int, default=128, help="maximum examples per request"
    )
    parser.add_argument("--max-k", type=int, default=1000, help="maximum k of a request")
    parser.add_argument(
        "--timeout",
        type=float,
        default=20,
        help="seconds to send a request; an exchange may take 3 times as long",
    )
    options = parser.parse_args(arguments)
    model = ServedModel(options.folder, options.max_batch, options.max_k)
    config = uvicorn.Config(
        new_app(model, options.timeout),
        http=functools.partial(TimedConnection, 3 * options.timeout),
        ws="none",
        log_level="warning",
        limit_concurrency=MOST_CONNECTIONS,
    )
    with socket.create_server((options.host, options.port), backlog=128) as listener:
        port = listener.getsockname()[1]
        print(
            f"{model.name}, version {model.version}: http://{options.host}:{port}/", flush=True
        )
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main()
