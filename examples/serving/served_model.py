"""An exported model that answers requests in the REST format of TensorFlow Serving."""

import json
import math
import pathlib
from typing import Annotated, Any

import numpy as np
import tensorflow as tf
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

MAX_TEXT = 300  # Maximum length of a message in characters.


class RefusedError(ValueError):
    """A request is invalid. The message says why."""


class PredictRequest(BaseModel):
    """A request with either `instances` (examples) or `inputs` (one tensor per input)."""

    signature_name: str = "serving_default"
    instances: list[Any] | None = None
    inputs: Any = None


class ServedModel:
    """The newest version in a folder of exports.

    Args:
        folder: Folder named after the model, with one numbered folder per version.
        max_batch: Maximum number of examples per request. It is also the maximum length of
            every other axis whose size the model does not fix.
        max_k: Maximum `k` of a request.
    """

    def __init__(self, folder, max_batch=128, max_k=1000):
        folder = pathlib.Path(folder).resolve()
        versions = [int(one.name) for one in folder.glob("*") if one.name.isdecimal()]
        if not versions:
            raise SystemExit(f"{folder} has no version folder, such as {folder}/1.")
        self.name, self.version = folder.name, max(versions)
        path = folder / str(self.version)
        self.max_batch = max_batch
        self.signatures = _load(path).signatures
        self.specs = {
            name: one.structured_input_signature[1] for name, one in self.signatures.items()
        }
        self.inputs = {
            name: _inputs_type(name, specs, max_batch, max_k)
            for name, specs in self.specs.items()
        }
        names = path / "assets" / "class_names.txt"
        self.class_names = None
        if names.exists():
            lines = names.read_text("utf-8").split("\n")
            # The file ends with a newline, so the last entry is "": the name for id -1.
            self.class_names = np.array(lines, object)

    def description(self):
        """Returns the name of the model and its inputs, for the web page."""
        specs = self.specs["serving_default"]
        inputs = {
            name: {"dtype": one.dtype.name, "shape": one.shape.as_list()}
            for name, one in specs.items()
        }
        return {"name": self.name, "version": str(self.version), "inputs": inputs}

    def schema(self):
        """Returns the JSON schema of a request, for the description of the API."""
        schema = PredictRequest.model_json_schema()
        forms = [one.json_schema() for one in self.inputs.values()]
        schema["properties"]["inputs"] = {"title": "Inputs", "anyOf": forms}
        return schema

    def predict(self, body):
        """Answers a request.

        Args:
            body: JSON, as bytes.

        Returns:
            JSON, as a string.

        Raises:
            RefusedError: If the request is invalid.
        """
        try:
            request = PredictRequest.model_validate_json(body)
            if request.signature_name not in self.signatures:
                names = ", ".join(self.signatures)
                raise RefusedError(f"signature_name: must be one of: {names}")
            values = _columns(request, self.specs[request.signature_name])
            values = self.inputs[request.signature_name].validate_python(values)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))[:MAX_TEXT]
            raise RefusedError(f"{place}: {first['msg']}".removeprefix(": ")) from None
        outputs = self._run(request.signature_name, values)
        if request.instances is None:
            answer = {"outputs": outputs}
        else:
            rows = zip(*outputs.values(), strict=True)
            answer = {"predictions": [dict(zip(outputs, row, strict=True)) for row in rows]}
        return json.dumps(answer, ensure_ascii=False, allow_nan=False)

    def _run(self, name, values):
        specs = self.specs[name]
        tensors = {key: self._tensor(value, specs[key]) for key, value in values.items()}
        try:
            found = self.signatures[name](**tensors)
        except tf.errors.OpError as error:
            # The other lines describe the graph.
            text = error.message.split("\n\t")[0].rsplit("\n", 1)[-1]
            raise RefusedError(text[:MAX_TEXT]) from None
        found = {key: value.numpy() for key, value in sorted(found.items())}
        if self.class_names is not None:
            found["names"] = self.class_names[found["ids"]]
        return {key: _json_lists(value) for key, value in found.items()}

    def _tensor(self, value, spec):
        try:
            tensor = tf.constant(value, spec.dtype)
        except (TypeError, ValueError) as error:  # Lists of different lengths.
            raise RefusedError(f"{spec.name}: {error}"[:MAX_TEXT]) from None
        if not spec.shape.is_compatible_with(tensor.shape):
            raise RefusedError(f"{spec.name}: must have the shape {spec.shape}")
        sizes = zip(tensor.shape, spec.shape, strict=True)
        rows = math.prod(size for size, fixed in sizes if fixed is None)
        if spec.name != "exclude" and rows > self.max_batch:
            raise RefusedError(
                f"{spec.name}: {rows} rows; at most {self.max_batch} are allowed"
            )
        return tensor


def _load(path):
    """Loads an export.

    Raises:
        SystemExit: If it needs the ops of `tf_largeout`.
    """
    try:
        return tf.saved_model.load(str(path))
    except (RuntimeError, tf.errors.NotFoundError, FileNotFoundError) as error:
        if "Op type not registered" not in str(error):
            raise
        raise SystemExit(
            f"{path} was exported with ops='custom', but this server has only the ops of "
            "TensorFlow. Export the model with ops='core', or build TensorFlow Serving with "
            f"the ops (docs/guides/serving.md). TensorFlow says: {str(error)[:MAX_TEXT]}"
        ) from None


def _json_lists(values):
    """Returns an array as lists; None, null in JSON, for numbers that are not finite."""
    if values.dtype.kind == "f":
        values = np.where(np.isfinite(values), values.astype(object), None)
    return values.tolist()


def _columns(request, specs):
    """Returns the values of each input, from either format of a request."""
    if (request.instances is None) == (request.inputs is None):
        raise RefusedError('a request must have one of "instances" and "inputs"')
    values = request.inputs if request.instances is None else request.instances
    if request.instances and isinstance(values[0], dict):
        if any(not isinstance(row, dict) or row.keys() != values[0].keys() for row in values):
            raise RefusedError(f"instances: each must have the same inputs, of {sorted(specs)}")
        values = {key: [row[key] for row in values] for key in values[0]}
    if not isinstance(values, dict) and len(specs) == 1:
        values = {next(iter(specs)): values}
    return values


def _inputs_type(name, specs, max_batch, max_k):
    """Returns a pydantic type for the inputs of a signature."""
    types = {key: _type_of(spec, max_batch) for key, spec in specs.items()}
    if "k" in types:
        types["k"] = Annotated[int, Field(ge=0, le=max_k)]
    inputs = with_config(ConfigDict(strict=True, extra="forbid"))(TypedDict(name, types))
    return TypeAdapter(inputs)


def _type_of(spec, max_batch):
    """Returns the type of nested lists of numbers or strings with the shape of a tensor."""
    if spec.dtype == tf.string:
        kind = str
    elif spec.dtype == tf.bool:
        kind = bool
    elif spec.dtype.is_integer:
        kind = Annotated[int, Field(ge=spec.dtype.min, le=spec.dtype.max)]
    else:
        kind = float
    for size in reversed(spec.shape.as_list()):
        least, most = (0, max_batch) if size is None else (size, size)
        kind = Annotated[list[kind], Field(min_length=least, max_length=most, fail_fast=True)]
    return kind
