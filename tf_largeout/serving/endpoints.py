"""The functions that an export contains: they find the best classes for a model's inputs."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from tf_largeout import checks
from tf_largeout.classes.best_scores import NOTHING
from tf_largeout.classes.probabilities import Probabilities
from tf_largeout.layers import ClassOutput
from tf_largeout.serving.class_scores import ClassScores
from tf_largeout.steps.output_tag import tag_and_mask

Answer = dict[str, tf.Tensor]
# The other inputs of the signature `top_k`.
RESERVED = ("k", "exclude")
_AUTOMATIC = ("keras_tensor", "input_layer")  # names that Keras numbers across models


@dataclasses.dataclass(frozen=True, eq=False)
class Endpoints:
    """The two signatures of an export.

    An example whose features are not finite, or so large that scores may overflow, gets -inf
    and -1. It does not raise an error, because this would fail the whole batch, which a server
    may have combined from several requests. Scores may overflow if the sum of `|h_i|` is above
    `largest_features`. `probabilities` replace -inf by 0; None returns the scores.
    """

    model: keras.Model
    classes: ClassScores
    num_classes: int
    largest_features: float
    probabilities: Probabilities | None = None

    def best(self, inputs: Any, k: int) -> Answer:
        """Returns the `k` best classes: `scores` and `ids` `[batch, ..., k]`, best first."""
        features, finite, shape = self._features(inputs)
        scores, ids = self.classes.top_k(features, k)
        return self._answer(scores, ids, features, finite, shape)

    def best_but(self, inputs: Any, k: tf.Tensor, exclude: tf.Tensor) -> Answer:
        """Returns the `k` best classes that are not excluded, exactly if `classes` is exact.

        `exclude` and padding are as in `export`. A `k` out of range, or another number of rows
        in `exclude`, raises a `tf.errors.InvalidArgumentError` when the signature runs.
        """
        valid = checks.require(
            (k >= 0) & (k <= self.num_classes),
            [f"`k` must be from 0 to the number of classes, {self.num_classes}. Received:", k],
        )
        k = checks.passed([valid], k)
        features, finite, shape = self._features(inputs)
        batch = tf.shape(features)[0] if shape is None else shape[0]
        rows, width = tf.unstack(tf.shape(exclude))
        message = "`exclude` must have one row per example, or one row for all. Received rows:"
        received = [message, rows, "examples:", batch]
        valid = checks.require((rows == 1) | (rows == batch), received)
        exclude = tf.broadcast_to(checks.passed([valid], exclude), [batch, width])
        if shape is not None:  # the exclusions of a sequence apply to all its positions
            exclude = tf.repeat(exclude, tf.reduce_prod(shape[1:]), axis=0)
        # The ops of the custom export need a `k` of at least 1.
        scores, ids = self.classes.top_k(features, tf.maximum(k, 1), exclude)
        return self._answer(scores[:, :k], ids[:, :k], features, finite, shape)

    def _features(self, inputs: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor | None]:
        """Returns features `[B, dim]`, whether they are finite, and the shape of sequences.

        Features are zeros for examples whose features or scores may not be finite.
        """
        tag = tag_and_mask(self.model, inputs, "`export`")[0]
        features = tag.head.class_matrix.form.queries(tf.cast(tag.features, tf.float32))
        shape = None
        if features.shape.rank > 2:
            shape = tf.shape(features)[:-1]
            features = tf.reshape(features, [-1, features.shape[-1]])
        size = tf.reduce_sum(tf.abs(features), axis=1, keepdims=True)
        finite = size <= self.largest_features  # false for NaN
        return tf.where(finite, features, 0.0), finite, shape

    def _answer(
        self,
        scores: tf.Tensor,
        ids: tf.Tensor,
        features: tf.Tensor,
        finite: tf.Tensor,
        shape: tf.Tensor | None,
    ) -> Answer:
        scores = tf.where(finite, scores, NOTHING)
        ids = tf.where(scores > NOTHING, ids, -1)
        if self.probabilities is not None:
            scores = self.probabilities(scores, features, self.classes)
        if shape is not None:
            shape = tf.concat([shape, tf.shape(scores)[1:]], axis=0)
            scores, ids = tf.reshape(scores, shape), tf.reshape(ids, shape)
        return {"scores": scores, "ids": ids}


def output_layer_of(model: keras.Model, specs: Any) -> ClassOutput:
    """Returns the output layer of `model`; raises a ValueError if it is no `ClassOutput`."""
    found: list[ClassOutput] = []

    @tf.function(input_signature=[specs], autograph=False)
    def find(inputs: Any) -> None:
        found.append(tag_and_mask(model, inputs, "`export`")[0].owner)

    find.get_concrete_function()
    return found[0]


def input_specs(model: keras.Model) -> Any:
    """Returns a `tf.TensorSpec` for each input of `model`, in the structure of its call.

    It has the name of the `keras.Input` or its key; without one, "features", or "features_0",
    ... for several. If mixed precision made the type of an input without a name float16 or
    bfloat16, the spec has float32, which the model casts. A ValueError says if the model is not
    built, or an input cannot be served.
    """
    inputs = _inputs_of(model)
    tensors = keras.tree.flatten(inputs)
    names = _names(tensors)
    if isinstance(inputs, dict):  # Keras flattens it in the order of its keys
        names = [str(path[-1]) for path, _ in keras.tree.flatten_with_path(inputs)]
    _check_names(names, model.name)
    specs = [_spec(*pair, model.name) for pair in zip(tensors, names, strict=True)]
    return keras.tree.pack_sequence_as(inputs, specs)


def _inputs_of(model: keras.Model) -> Any:
    """Returns the symbolic inputs, in their structure."""
    if not model.built:
        raise ValueError(
            f"Model '{model.name}' is not built, so it has no weights to export. First call it "
            "on data, or start it with a keras.Input."
        )
    if getattr(model, "inputs", None):
        return model.inputs[0] if isinstance(model, keras.Sequential) else model.input
    shapes = (model.get_build_config() or {}).get("input_shape")
    if isinstance(shapes, tuple) and all(isinstance(n, int | None) for n in shapes):
        return keras.KerasTensor(shapes, model.input_dtype, name=_AUTOMATIC[0])
    raise ValueError(
        f"The shapes and types of the inputs of model '{model.name}' are not known. Specify "
        "them with a model around it: inputs = keras.Input([16], name=...); export keras.Model("
        "inputs, model(inputs))."
    )


def _names(tensors: list[Any]) -> list[str]:
    automatic = [one.name.startswith(_AUTOMATIC) for one in tensors]
    if len(tensors) == 1 and automatic[0]:
        return ["features"]
    return [
        f"features_{place}" if unnamed else one.name
        for place, (one, unnamed) in enumerate(zip(tensors, automatic, strict=True))
    ]


def _check_names(names: Iterable[str], owner: str) -> None:
    taken = [*names, *RESERVED]
    twice = sorted({name for name in taken if taken.count(name) > 1})
    if twice:
        raise ValueError(
            f"Each input of the signatures needs a unique name, and `top_k` already has the "
            f"inputs {RESERVED}. Received: model '{owner}' with inputs {list(names)}: {twice} "
            "would occur twice. Give them names: keras.Input(..., name=...)."
        )


def _spec(tensor: Any, name: str, owner: str) -> tf.TensorSpec:
    for kind in ("sparse", "ragged"):
        if getattr(tensor, kind, False):
            raise ValueError(
                f"Servers send dense tensors. Received: model '{owner}', whose input '{name}' "
                f"is {kind}. Put a model around it that converts padded ids to this input."
            )
    dtype = tensor.dtype
    if tensor.name.startswith(_AUTOMATIC) and dtype in ("float16", "bfloat16"):
        dtype = "float32"
    return tf.TensorSpec((None, *tensor.shape[1:]), dtype, name=name)
