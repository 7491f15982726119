"""`TiedEmbeddings`: the table of another layer as class embeddings."""

import inspect
from collections.abc import Iterator
from typing import Any

import keras

from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.keras_internals import operation_before
from tf_largeout.layer_arguments import require_row_per_class
from tf_largeout.types import Config, TensorLike
from tf_largeout.variables import class_rows


class TiedEmbeddings:
    """The argument `embeddings` of `LargeOutput`: a layer with a table, or a table.

    `identifier` is a layer with a table `embeddings` of `num_classes` rows, such as
    `keras.layers.Embedding`, `ReversibleEmbedding` or `tf_largeout.layers.EmbeddingBag`; or the
    table, a `keras.Variable`. Then `layer` is None.

    Raises:
        ValueError: If `identifier` is something else, the table has another number of rows, or
            the logits of the layer (`call(reverse=True)`) are not products with the table.
    """

    def __init__(
        self,
        identifier: keras.layers.Layer | keras.Variable,
        num_classes: int,
        owner: str,
        logit_soft_cap: float | None = None,
    ) -> None:
        is_table = isinstance(identifier, keras.Variable)
        if not (is_table or _has_table(identifier)):
            raise ValueError(
                "`embeddings` must be a layer with a table, such as keras.layers.Embedding, or "
                f"its table, a keras.Variable. Received: {_description(identifier)}. For "
                "initial values use `embeddings_initializer`."
            )
        if not is_table:
            _require_transposed_table(identifier, owner, logit_soft_cap)
        self.layer: keras.layers.Layer | None = None if is_table else identifier
        self._table: keras.Variable | None = identifier if is_table else None
        self._num_classes, self._owner = num_classes, owner
        num_rows = getattr(self.layer, "input_dim", num_classes)
        if self._table is not None:
            num_rows = self._table.shape[0]
        require_row_per_class(num_rows, num_classes)

    def table(self, dim: int, dtype: str | None = None) -> keras.Variable:
        """Returns the table, for features of width `dim`. A bfloat16 table is marked as such.

        Without a `dtype`, it must be float32 or bfloat16. Other tables raise a ValueError.
        """
        if self.layer is not None and not self.layer.built:
            raise ValueError(
                f"Layer '{self._owner}' shares the table of layer '{self.layer.name}', which "
                "is not built yet. Call that layer first in the model, or call its `build()`. "
                "(A subclassed model that is made from its config does not know which layers "
                "share a table. Build it in your code, then use `load_weights` or "
                "`set_weights`.)"
            )
        table: keras.Variable = self._table if self.layer is None else self.layer.embeddings
        if not isinstance(table, keras.Variable) or "float" not in str(table.dtype):
            raise ValueError(self._not_one_variable(table))
        if str(table.dtype) not in ([dtype] if dtype else ["float32", "bfloat16"]):
            raise ValueError(
                f"Layer '{self._owner}' shares a table, which must be {dtype or 'float32'}"
                f"{'' if dtype else ' or bfloat16'}. Received: a table of dtype {table.dtype}. "
                f"Create its layer with dtype='{dtype or 'float32'}'"
                f"{', or leave `embeddings_dtype` out' if dtype else ''}."
            )
        require_row_per_class(table.shape[0], self._num_classes)
        if tuple(table.shape[1:]) != (dim,):
            raise ValueError(
                f"Layer '{self._owner}' shares a table of shape {tuple(table.shape)}, so its "
                f"features must be {table.shape[1]} wide. Received: features of width {dim}. "
                f"Put keras.layers.Dense({table.shape[1]}) before it."
            )
        if table.dtype == "bfloat16":
            class_rows.mark(table, is_shared=True)
        return class_rows.mark_sparse(table)

    def look_for_layer(self, features: TensorLike) -> bool:
        """Replaces a layer that is not built by the layer of its name before `features`.

        The config of the output layer contains a copy of the shared layer. So if
        `keras.models.clone_model` makes a model, or Keras loads it as a part of another model,
        it has the layer twice. Returns whether the layer was replaced.
        """
        if self.layer is None or self.layer.built:
            return False
        for layer in layers_before(features):
            if layer.name == self.layer.name and layer.built and _has_table(layer):
                self.layer = layer
                return True
        return False

    def check_shared(self, embeddings: keras.Variable) -> None:
        """Raises a ValueError if the layer has replaced its table, e.g. by a quantized one."""
        if self.layer is not None and self.layer.embeddings is not embeddings:
            raise ValueError(self._not_one_variable(self.layer.embeddings))

    def serialize(self) -> Config:
        """Returns the config of the layer, marked as shared. A table raises a ValueError."""
        if self.layer is None:
            raise ValueError(
                f"Layer '{self._owner}' was given a table, and a config cannot say to which "
                "layer it belongs. Pass the layer: embeddings=layer, not layer.embeddings."
            )
        # Twice, because Keras marks a layer as shared when it is serialized again.
        for _ in range(2):
            config = keras.saving.serialize_keras_object(self.layer)
        # If Keras does not find the layer of the model, it creates a new one. The new layer is
        # not built, so `look_for_layer` and `table` detect it.
        config.pop("build_config", None)
        return config

    def changed_attribute(self, change: ClassChange) -> tuple[keras.layers.Layer, str, int]:
        """See `ClassOutput.changed_attributes`; raises a ValueError if there is none."""
        layer: keras.layers.Layer = self.layer
        if layer is None:
            self.serialize()  # raises the error
        if getattr(layer, "input_dim", None) != change.num_before:
            raise ValueError(
                f"Cannot resize layer '{layer.name}': the table that it shares with layer "
                f"'{self._owner}' does not have `input_dim` rows, so it cannot be made from "
                "its config. Build the resized model in your code, and copy the weights."
            )
        others = [one for one in layer.weights if one is not layer.embeddings]
        if any(change.num_before in one.shape for one in others):
            raise ValueError(
                f"Cannot resize layer '{layer.name}', which shares its table with layer "
                f"'{self._owner}'. One of its other weights, {[one.path for one in others]}, "
                f"also has an axis of {change.num_before}, and it is not known whether this "
                "axis belongs to the classes. Use a layer with one table, such as "
                "keras.layers.Embedding."
            )
        return layer, "input_dim", change.num_classes

    def _not_one_variable(self, table: TensorLike) -> str:
        return (
            f"The table that layer '{self._owner}' shares must be one variable of floats. "
            f"Received: a {type(table).__name__} of dtype {table.dtype}. Share the table of a "
            "layer without quantization and LoRA."
        )


def _has_table(layer: object) -> bool:
    # `dir`, because the attribute may be a property that fails before the layer is built.
    return isinstance(layer, keras.layers.Layer) and "embeddings" in dir(layer)


def _require_transposed_table(
    layer: keras.layers.Layer, owner: str, logit_soft_cap: float | None
) -> None:
    """Raises a ValueError if the logits of `layer(x, reverse=True)` are others."""
    call = getattr(type(layer), "call", None)
    if call is None or "reverse" not in inspect.signature(call).parameters:
        return
    reversible = getattr(keras.layers, "ReversibleEmbedding", None)
    message = f"Layer '{owner}' computes its logits as `x @ embeddings.T`, but "
    if call is not getattr(reversible, "call", None):
        raise ValueError(
            f"{message}{type(layer).__name__} '{layer.name}' defines `call(reverse=True)` "
            "itself. If that is the same product, build the layer and pass its table: "
            "`embeddings=layer.embeddings`."
        )
    if not layer.tie_weights:
        raise ValueError(
            f"{message}ReversibleEmbedding '{layer.name}' has tie_weights=False: its logits "
            "come from `reverse_embeddings`. Leave `embeddings` out, so that the LargeOutput "
            "has its own table. To start from the same rows, pass "
            "`embeddings_initializer=layer.reverse_embeddings.numpy().T`."
        )
    if layer.logit_soft_cap not in (None, logit_soft_cap):
        raise ValueError(
            f"ReversibleEmbedding '{layer.name}' and layer '{owner}' must have the same "
            f"logit_soft_cap. Received: {layer.logit_soft_cap} and {logit_soft_cap}."
        )


def layers_before(features: TensorLike) -> Iterator[keras.layers.Layer]:
    """Yields all layers before a symbolic tensor, and the layers in those that are models."""
    pending, seen = keras.tree.flatten(features), set()
    while pending:
        operation = operation_before(pending.pop())
        if operation is None or id(operation) in seen:
            continue
        seen.add(id(operation))
        if isinstance(operation, keras.layers.Layer):
            yield from _with_parts(operation)
        pending += keras.tree.flatten(operation.input)


def _with_parts(layer: keras.layers.Layer) -> Iterator[keras.layers.Layer]:
    yield layer
    for part in getattr(layer, "layers", []):
        yield from _with_parts(part)


def _description(value: Any) -> str:
    """Returns the value for a message; of an array only its shape."""
    shape = getattr(value, "shape", None)
    if shape is None or isinstance(value, keras.layers.Layer):
        return f"embeddings={value!r}"
    return f"an array of shape {tuple(shape)}"
