"""`ItemTower`: computes class rows from features of the classes."""

import logging
import re
import weakref
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_largeout.arguments import boolean
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.classes.tied_embeddings import layers_before
from tf_largeout.types import Config, TensorLike
from tf_largeout.variables.class_rows import mark_sparse
from tf_largeout.variables.initializers import constant_initializer
from tf_largeout.variables.replicas import local_variable

# The weights of towers in a checkpoint.
_FEATURES = re.compile(r"(^|/)features_0/\.ATTRIBUTES/VARIABLE_VALUE$")
_FREE_ROWS = re.compile(r"(^|/)free_rows/\.ATTRIBUTES/VARIABLE_VALUE$")
# The towers that use an encoder.
_TOWERS: weakref.WeakKeyDictionary[keras.layers.Layer, weakref.WeakSet["ItemTower"]] = (
    weakref.WeakKeyDictionary()
)


@keras.saving.register_keras_serializable(package="tf_largeout")
class ItemTower(keras.layers.Layer):
    """Computes class rows from features of the classes, for `LargeOutput(embeddings=...)`.

    The row of class c is `encoder(features[c])`. With `free_rows`, a trained row of the class
    is added to it. So classes that never occur in the training data also get useful rows, and a
    model can score new classes without training. This is the item tower of a two-tower model.

    ```python
    features = np.random.normal(size=[5_000, 20])  # of 5,000 classes
    tower = tflo.layers.ItemTower(features, keras.layers.Dense(64))
    output = tflo.layers.LargeOutput(5_000, sampler="uniform", embeddings=tower)
    ```

    If inputs and classes have features of the same kind, such as words, one layer can encode
    both:

    ```python
    words = np.random.randint(1, 1_000, size=[5_000, 8])  # of 5,000 classes
    bag = tflo.layers.EmbeddingBag(1_000, 64)
    tower = tflo.layers.ItemTower(words, bag)
    output = tflo.layers.LargeOutput(5_000, sampler="uniform", embeddings=tower)
    model = keras.Sequential([keras.Input([8], dtype="int64"), bag, output])
    ```

    A training step computes only the rows of its labels and sampled classes, each once. So use
    a sampler that shares its classes among the examples. The step computes all rows if a Keras
    loss or metric, another layer or your own `train_step` may read the logits. `evaluate`,
    `top_k` and `class_embeddings` compute all rows, and compute them again only after the
    weights of the encoder have changed. An exact loss trains on all rows in each step, and
    stores the activations of the encoder for all classes.

    To add or remove classes, use `tf_largeout.resize_classes` with the `features` of the new
    classes. It keeps the encoder and the free rows.

    Args:
        features: Array `[num_classes, ...]` of numbers, or a dict or list of such arrays, in
            the structure of the encoder's inputs. Row c belongs to class c. They are stored as
            weights that are not trained, and saved with the model: integers as int64, because
            TensorFlow does not support int32 variables on a GPU, and other numbers as float32.
            A config has no features: a copy from a config needs `set_weights`, `load_weights`
            or a `tf.train.Checkpoint`.
        encoder: Keras layer or model with the output `[n, dim]`, where `dim` is the width of
            the output layer's features. It may also be a layer of the model that encodes the
            inputs.
        free_rows: Whether each class also has a trained row, which starts at 0. Defaults to
            False.
        **kwargs: Arguments of `keras.layers.Layer`.

    Raises:
        ValueError: If the features are not arrays of numbers, or have different lengths.
        tf.errors.InvalidArgumentError: In a step, if the encoder returns NaN or infinity.

    Attributes:
        num_classes: Number of classes.
        free_rows: Keras variable `[num_classes, dim]`, or None.
        shares_encoder: Whether the encoder is also a layer of the model that encodes the
            inputs. Known once a functional or sequential model has called the output layer.
    """

    def __init__(
        self, features: Any, encoder: keras.layers.Layer, free_rows: bool = False, **kwargs: Any
    ) -> None:
        shares_encoder = kwargs.pop("shares_encoder", False)  # from a config
        super().__init__(**kwargs)
        arrays = keras.tree.map_structure(_as_array, features)
        flat = keras.tree.flatten(arrays)
        lengths = {one.shape[0] for one in flat}
        if len(lengths) != 1:
            raise ValueError(
                "`features` must be arrays with one row per class. Received: arrays of shapes "
                f"{[tuple(one.shape) for one in flat]}."
            )
        if not isinstance(encoder, keras.layers.Layer):
            raise ValueError(f"`encoder` must be a Keras layer. Received: {encoder!r}.")
        self.num_classes = int(lengths.pop())
        # Keras tracks it from `build` on, because `find_encoder` may replace it before.
        self.__dict__["encoder"] = encoder
        self.shares_encoder = shares_encoder
        self._has_free_rows = boolean("free_rows", free_rows)
        self.free_rows: keras.Variable = None
        # A plain attribute would make Keras track the arrays.
        self.__dict__["_given"] = arrays
        self._values: list[keras.Variable] = []

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        """Creates the weights, for class rows of width `input_shape[-1]`."""
        self.encoder = self.__dict__.pop("encoder")
        given = self.__dict__["_given"]
        for number, array in enumerate(keras.tree.flatten(given)):
            is_array = isinstance(array, np.ndarray)
            weight = self.add_weight(
                name=f"features_{number}",
                shape=array.shape,
                dtype=str(array.dtype),
                initializer=constant_initializer(array) if is_array else "zeros",
                trainable=False,
                autocast=False,
            )
            self._values.append(weight)
            setattr(self, weight.name, weight)  # tf.train.Checkpoint saves attributes
        # Not symbolic tensors: if a functional model also calls the encoder, it could not be
        # loaded.
        example = [tf.zeros((1, *one.shape[1:]), one.dtype) for one in self._values]
        rows = self.encoder(keras.tree.pack_sequence_as(given, example))
        dim = input_shape[-1]
        if len(rows.shape) != 2 or rows.shape[1] != dim:
            raise ValueError(
                f"`encoder` of an ItemTower must return rows [n, {dim}], as wide as the "
                f"features of the output layer. Received: {tuple(rows.shape)}."
            )
        if self._has_free_rows:
            self.free_rows = self.add_weight(
                name="free_rows",
                shape=(self.num_classes, dim),
                initializer="zeros",
                autocast=False,
            )
            mark_sparse(self.free_rows)
        self._warn_of_free_rows()
        spec = [keras.KerasTensor((None, *one.shape[1:]), one.dtype) for one in self._values]
        self.__dict__["_given"] = keras.tree.pack_sequence_as(given, spec)
        self.built = True

    def __call__(self, ids: tf.Tensor, *args: Any, **kwargs: Any) -> tf.Tensor:
        dtype, shape = getattr(ids, "dtype", "float32"), getattr(ids, "shape", ())
        if len(shape) != 1 or not tf.as_dtype(dtype).is_integer:
            raise ValueError(
                f"ItemTower '{self.name}' is not an output layer: it computes class rows for "
                f"one. Received: an input of shape {tuple(shape)} and dtype {dtype}, not class "
                "ids [n]. Pass the tower to the last layer of the model: LargeOutput("
                f"{self.num_classes}, sampler='uniform', embeddings=tower)."
            )
        return super().__call__(ids, *args, **kwargs)

    def call(self, ids: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        """Returns the rows of classes `ids`, int64 `[n]`, as float32 `[n, dim]`."""
        values = [tf.gather(local_variable(one), ids) for one in self._values]
        rows = self.encoder(keras.tree.pack_sequence_as(self.__dict__["_given"], values))
        rows = tf.cast(rows, tf.float32)
        if self.free_rows is not None:
            rows += tf.gather(local_variable(self.free_rows), ids)
        return rows

    def find_encoder(self, features: TensorLike) -> None:
        """Finds the encoder among the layers that encode the inputs of the model.

        The config of the output layer contains a copy of the encoder. If the encoder also
        encodes the inputs, `keras.models.clone_model` creates it twice. Then the layer of the
        model with its name replaces the copy. `features` are the input of the output layer; if
        they are not symbolic, no layer is found.
        """
        for layer in layers_before(features):
            if layer is self.encoder:
                self.shares_encoder = True
            elif self.shares_encoder and layer.name == self.encoder.name:
                self.__dict__["encoder"] = layer

    def changed_attribute(self, change: ClassChange) -> tuple[keras.layers.Layer, str, int]:
        """Returns what must change, see `ClassOutput.changed_attributes`; checks features."""
        self._features_of_new(change)
        return self, "num_classes", change.num_classes

    def rows_of_new(self, change: ClassChange) -> dict[int, np.ndarray | None]:
        """Returns the rows of new classes, by `id` of the weight; None for initial rows."""
        found: dict[int, np.ndarray | None] = dict(
            zip(map(id, self._values), self._features_of_new(change), strict=True)
        )
        return found if self.free_rows is None else {**found, id(self.free_rows): None}

    def _features_of_new(self, change: ClassChange) -> list[np.ndarray]:
        """Returns `change.features` as arrays, in the order of the weights."""
        spec, count = self.__dict__["_given"], change.num_new
        flat = [(str(one.dtype), (count, *one.shape[1:])) for one in keras.tree.flatten(spec)]
        if change.features is None and not count:
            return [np.zeros(shape, dtype) for dtype, shape in flat]
        needed = keras.tree.pack_sequence_as(spec, [f"{d} {list(s)}" for d, s in flat])
        try:
            keras.tree.assert_same_structure(spec, change.features)
            arrays = [_as_numbers(one) for one in keras.tree.flatten(change.features)]
            found = [(str(one.dtype), one.shape) for one in arrays]
        except (ValueError, TypeError):
            found = []
        # Integers can be features that are stored as floats.
        if [one[1] for one in found] == [one[1] for one in flat] and all(
            given in (stored, "int64")
            for (given, _), (stored, _) in zip(found, flat, strict=True)
        ):
            return [one.astype(dtype) for one, (dtype, _) in zip(arrays, flat, strict=True)]
        received = [f"{dtype} {list(shape)}" for dtype, shape in found]
        raise ValueError(
            f"Cannot resize ItemTower '{self.name}' without `features` of the {count} new "
            f"classes: finite numbers of these dtypes and shapes: {needed}. Received: "
            f"{received or type(change.features).__name__}. Pass `features=` to "
            "`tf_largeout.resize_classes`."
        )

    def _warn_of_free_rows(self) -> None:
        """Warns if another tower with the same encoder has trained free rows."""
        towers = _TOWERS.setdefault(self.encoder, weakref.WeakSet())
        for other in towers:
            with tf.init_scope():
                is_trained = other.free_rows is not None and np.any(other.free_rows)
            if is_trained:
                logging.getLogger("tf_largeout").warning(
                    "ItemTower '%s' starts without the trained free rows of ItemTower '%s', "
                    "which has the same encoder. So their class rows differ. To add classes to "
                    "a model and keep its free rows, use tf_largeout.resize_classes(model, "
                    "num_classes, features=...).",
                    self.name,
                    other.name,
                )
        towers.add(self)

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        own = [self.free_rows] * self._has_free_rows + self._values
        needed = [tuple(one.shape) for one in own]
        found = [tuple(store[str(number)].shape) for number in range(len(store.keys()))]
        if self.built and needed != found:
            raise ValueError(
                f"ItemTower '{self.name}' has weights of the shapes {needed}: free rows, if "
                f"any, and features. The file has {found}. Load it into a model with the same "
                "classes and the same `free_rows`. Then add classes with "
                "`tf_largeout.resize_classes`."
            )
        super().load_own_variables(store)

    def require_fit(self, path: str) -> None:
        """Raises a ValueError if a checkpoint lacks features, or this tower lacks free rows."""
        names = [name for name, _ in tf.train.list_variables(path)]
        num_features, num_free_rows = (
            sum(map(bool, map(kind.search, names))) for kind in (_FEATURES, _FREE_ROWS)
        )
        if not self._has_free_rows and num_free_rows >= max(1, num_features):
            raise ValueError(
                f"ItemTower '{self.name}' has no free rows. Received: the checkpoint '{path}' "
                "of a tower with trained free rows. Without them, the scores would differ. "
                "Restore it into a model with `free_rows=True`."
            )
        given = keras.tree.flatten(self.__dict__["_given"])
        if self.built:  # an array may have been given, or set since
            has_features = any(bool(tf.reduce_any(one.value != 0)) for one in self._values)
        else:
            has_features = all(isinstance(one, np.ndarray) for one in given)
        if not has_features and not num_features:
            raise ValueError(
                f"ItemTower '{self.name}' was made from a config, so it has no features of the "
                f"classes yet. Received: the checkpoint '{path}' without features, of an "
                "earlier version of tf_largeout. Restore it into a model that your code builds "
                "with ItemTower(features, ...). A checkpoint of that model has the features."
            )

    def serialize(self) -> Config:
        """Returns the config without `build_config`: the output layer builds the tower."""
        config: Config = keras.saving.serialize_keras_object(self)
        config.pop("build_config", None)
        return config

    def get_config(self) -> Config:
        given = keras.tree.map_structure(
            lambda one: keras.KerasTensor((self.num_classes, *one.shape[1:]), str(one.dtype)),
            self.__dict__["_given"],
        )
        return {
            **super().get_config(),
            "features": keras.saving.serialize_keras_object(given),
            "encoder": keras.saving.serialize_keras_object(self.encoder),
            "free_rows": self._has_free_rows,
            "shares_encoder": self.shares_encoder,
        }

    @classmethod
    def from_config(cls, config: Config) -> "ItemTower":
        config = dict(config)
        for name in ("features", "encoder"):
            config[name] = keras.saving.deserialize_keras_object(config[name])
        return cls(**config)


def _as_array(value: Any) -> Any:
    """Returns features as an array; a symbolic tensor, from a config, stays as it is."""
    if isinstance(value, keras.KerasTensor):
        return value
    array = _as_numbers(value)
    if not len(array):
        raise ValueError(
            "`features` of an ItemTower must have a row per class. Received: an array of shape "
            f"{array.shape}."
        )
    return array


def _as_numbers(value: Any) -> np.ndarray:
    """Returns features, which must be finite numbers, as int64 or float32 `[n, ...]`."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf" or not array.ndim:
        raise ValueError(
            "`features` of an ItemTower must be arrays [num_classes, ...] of numbers. "
            f"Received: {array.dtype} of shape {array.shape}. Convert strings by "
            "keras.layers.StringLookup, and pad lists to arrays."
        )
    kinds = {"f": np.float32, "b": np.float32}
    array = array.astype(kinds.get(array.dtype.kind, np.int64))
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(
            "`features` of an ItemTower must be finite. Received: NaN or infinity."
        )
    return array
