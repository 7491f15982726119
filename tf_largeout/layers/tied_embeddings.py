"""The table of another layer as the class embeddings of a `LargeOutput`."""

import inspect
from collections.abc import Iterator
from typing import Any

import keras

from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.keras_internals import layer_before
from tf_largeout.types import Config, InitializerLike, TensorLike


class TiedEmbeddings:
    """What `embeddings` of `LargeOutput` means: a layer with a table, or the table itself.

    Args:
        identifier: A layer whose `embeddings` are a table, as `keras.layers.Embedding`,
            `ReversibleEmbedding` and `tf_largeout.layers.EmbeddingBag` have them; its
            serialized form; or the table itself, a `keras.Variable`.
        num_classes: Number of rows that the table must have.
        owner: Name of the `LargeOutput`, for messages.

    Attributes:
        layer: The layer, or None where the table itself was given.

    Raises:
        ValueError: If it is something else, the table has another number of rows, or the layer
            computes logits from something else than the table (`call(reverse=True)`).
    """

    def __init__(
        self,
        identifier: keras.layers.Layer | keras.Variable | Config,
        num_classes: int,
        owner: str,
    ) -> None:
        if isinstance(identifier, dict):
            identifier = keras.saving.deserialize_keras_object(identifier)
        is_table = isinstance(identifier, keras.Variable)
        if not (is_table or _has_table(identifier)):
            raise ValueError(
                "`embeddings` must be a layer with a table, such as keras.layers.Embedding, or "
                f"its table, a keras.Variable. Received: embeddings={identifier!r}. For "
                "initial values take `embeddings_initializer`."
            )
        if not is_table:
            _require_transposed_table(identifier, owner)
        self.layer: keras.layers.Layer | None = None if is_table else identifier
        self._table: keras.Variable | None = identifier if is_table else None
        self._num_classes, self._owner = num_classes, owner
        self._check_rows(
            getattr(self.layer, "input_dim", num_classes)
            if self._table is None
            else self._table.shape[0]
        )

    def table(self, dim: int) -> keras.Variable:
        """The table, which rows of width `dim` are to be scored against.

        Raises:
            ValueError: If its layer has not been built, or it is no table of such rows that an
                optimizer could update by rows.
        """
        if self.layer is not None and not self.layer.built:
            raise ValueError(
                f"Layer '{self._owner}' shares the table of layer '{self.layer.name}', which "
                "is not built yet: call that layer in the model before, or its `build()`. (A "
                "model of your own class, made from a config, cannot know which layers belong "
                "together: make it by your code, and `load_weights` or `set_weights`.)"
            )
        table: keras.Variable = self._table if self.layer is None else self.layer.embeddings
        if not isinstance(table, keras.Variable) or "float" not in str(table.dtype):
            raise ValueError(self._not_one_variable(table))
        self._check_rows(table.shape[0])
        if tuple(table.shape[1:]) != (dim,):
            raise ValueError(
                f"Layer '{self._owner}' shares a table of shape {tuple(table.shape)}, so its "
                f"features must be {table.shape[1]} wide. Received: features of width {dim}. "
                f"Put keras.layers.Dense({table.shape[1]}) before it."
            )
        return table

    def look_for_layer(self, features: TensorLike) -> bool:
        """Whether a layer of the name before `features` takes the place of one not built.

        A copy of a model, as `keras.models.clone_model` and files of models inside of models
        make it, has a copy of the layer in the config of the output layer, besides its own.

        Args:
            features: The input of the output layer; symbolic, or else nothing is found.
        """
        if self.layer is None or self.layer.built:
            return False
        for layer in _layers_before(features):
            if layer.name == self.layer.name and layer.built and _has_table(layer):
                self.layer = layer
                return True
        return False

    def check_shared(self, embeddings: keras.Variable) -> None:
        """Raises a ValueError where the layer has another table now, as quantized ones have."""
        if self.layer is not None and self.layer.embeddings is not embeddings:
            raise ValueError(self._not_one_variable(self.layer.embeddings))

    def serialize(self) -> Config:
        """The config of the layer, which Keras knows for that of the model's own layer.

        Raises:
            ValueError: If the table itself was given: no config can say whose it is.
        """
        if self.layer is None:
            raise ValueError(
                f"Layer '{self._owner}' was given a table, of which a config cannot say whose "
                "it is. Pass the layer that has it: embeddings=layer, not layer.embeddings."
            )
        # Twice, because from the second mention on Keras marks a layer as one that is shared.
        for _ in range(2):
            config = keras.saving.serialize_keras_object(self.layer)
        # Where Keras does not find the model's own layer it makes another: not built, so that
        # `look_for_layer` and `table` notice.
        config.pop("build_config", None)
        return config

    def changed_attribute(self, change: ClassChange) -> tuple[keras.layers.Layer, str, int]:
        """What the config of the layer must say for other classes, as `ClassOutput` has it.

        Raises:
            ValueError: If that cannot be told.
        """
        layer: Any = self.layer
        if layer is None:
            self.serialize()  # which says why not
        if getattr(layer, "input_dim", None) != change.num_before:
            raise ValueError(
                f"The number of rows of layer '{layer.name}', which layer "
                f"'{self._owner}' shares, is not its `input_dim`, so that nobody else can give "
                "it another number. Make the new model by your own code."
            )
        others = [one for one in layer.weights if one is not layer.embeddings]
        if any(change.num_before in one.shape for one in others):
            raise ValueError(
                f"Layer '{layer.name}', which layer '{self._owner}' shares, has another "
                f"weight besides its table with {change.num_before} numbers on an axis: "
                f"{[one.path for one in others]}. Nobody else knows whether they belong to the "
                "classes. Take a layer with one table, such as keras.layers.Embedding."
            )
        return layer, "input_dim", change.num_classes

    def _not_one_variable(self, table: TensorLike) -> str:
        return (
            f"Layer '{self._owner}' cannot share a table that is a {type(table).__name__} of "
            f"dtype {table.dtype}, not one variable of floats. Share the table of a layer "
            "without quantization and LoRA."
        )

    def _check_rows(self, num_rows: int) -> None:
        if num_rows != self._num_classes:
            raise ValueError(
                f"A table that is shared must have one row per class. Received: a table of "
                f"{num_rows} rows and num_classes={self._num_classes}."
            )


def refuse_initializer(initializer: InitializerLike | TensorLike | None) -> None:
    """Raises a ValueError where `embeddings_initializer` is given besides a shared table."""
    if initializer is not None:
        raise ValueError(
            "A table that is shared has its values from its own layer. Received: both "
            f"`embeddings` and embeddings_initializer={initializer!r}. Leave one of them out."
        )


def _has_table(layer: object) -> bool:
    # `dir`, because the attribute may be a property that fails before the layer is built.
    return isinstance(layer, keras.layers.Layer) and "embeddings" in dir(layer)


def _require_transposed_table(layer: keras.layers.Layer, owner: str) -> None:
    """Raises a ValueError if `layer(x, reverse=True)` is not `x @ embeddings.T`."""
    call = getattr(type(layer), "call", None)
    if call is None or "reverse" not in inspect.signature(call).parameters:
        return
    reversible = getattr(keras.layers, "ReversibleEmbedding", None)
    message = f"Layer '{owner}' computes its logits as `x @ embeddings.T`, but "
    if call is not getattr(reversible, "call", None):
        raise ValueError(
            f"{message}{type(layer).__name__} '{layer.name}' has a `call(reverse=True)` of its "
            "own. If that is the same product, pass the table itself once the layer is built: "
            "`embeddings=layer.embeddings`."
        )
    if not layer.tie_weights:
        raise ValueError(
            f"{message}ReversibleEmbedding '{layer.name}' has tie_weights=False: its logits "
            "come from `reverse_embeddings`. Give the LargeOutput a table of its own: leave "
            "`embeddings` out. To begin with the same rows, pass "
            "`embeddings_initializer=layer.reverse_embeddings.numpy().T`."
        )
    if layer.logit_soft_cap is not None:
        raise ValueError(
            f"{message}ReversibleEmbedding '{layer.name}' has logit_soft_cap="
            f"{layer.logit_soft_cap}, which LargeOutput does not apply. Make the layer without "
            "a soft cap, or give the LargeOutput a table of its own."
        )


def _layers_before(features: TensorLike) -> Iterator[keras.layers.Layer]:
    """The layers that made a symbolic tensor, those of models among them included."""
    pending, seen = keras.tree.flatten(features), set()
    while pending:
        layer = layer_before(pending.pop())
        if layer is None or id(layer) in seen:
            continue
        seen.add(id(layer))
        yield from _with_parts(layer)
        pending += keras.tree.flatten(layer.input)


def _with_parts(layer: keras.layers.Layer) -> Iterator[keras.layers.Layer]:
    yield layer
    for part in getattr(layer, "layers", []):
        yield from _with_parts(part)
