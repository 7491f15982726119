"""`LargeOutput` on JAX: the last layer of a model with very many classes."""

import math
import random
from collections.abc import Mapping, MutableMapping
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras.src import losses, metrics
from keras.src.backend import get_keras_mask, set_keras_mask
from keras.src.backend.common.symbolic_scope import in_symbolic_scope

from tf_largeout import keras_names
from tf_largeout import layer_arguments as arguments
from tf_largeout.arguments import MOST_CLASSES, boolean, require_memory, whole_number
from tf_largeout.jax import retrieval, samplers
from tf_largeout.jax.rows import Table, value_of
from tf_largeout.jax.steps import Form, Head, Tag, attach
from tf_largeout.wrong_arguments import OF_LAYERS, refuse_wrong_arguments

_SCALE_OF_COSINES = 64.0  # of ArcFace


@keras.saving.register_keras_serializable(package="tf_largeout")
class LargeOutput(keras.layers.Layer):
    """Scores `num_classes` classes as `features @ class_embeddings.T + bias`.

    It returns logits, as a `Dense` layer does. The losses and metrics of this package do not
    read them, and XLA then removes their computation: a training step scores only the labels
    and the classes that `sampler` draws, and updates their rows in place. An evaluation step
    makes one exact pass over the classes. This needs a compiled step, which is Keras's default
    on JAX. Otherwise, each step computes all logits and copies the table.

    The arguments are those on TensorFlow, without `num_shards` and `ranking`. `embeddings` is a
    `keras.layers.Embedding` that the model calls before this layer, or its table.
    """

    def __init__(
        self,
        num_classes: int,
        sampler: Any = None,
        use_bias: bool = True,
        embeddings_initializer: Any = None,
        bias_initializer: Any = "zeros",
        embeddings: Any = None,
        num_shards: int = 1,
        normalize: bool = False,
        scale: float | str | None = None,
        logit_soft_cap: float | None = None,
        embeddings_dtype: str | None = None,
        ranking: str | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_wrong_arguments(type(self).__name__, kwargs, OF_LAYERS)
        loss_ranking = kwargs.pop("loss_ranking", None)  # in a file
        super().__init__(**kwargs)
        instead = "To divide the table, use keras.distribution.ModelParallel."
        _require("num_shards", num_shards, (1,), instead)
        for one in (ranking, loss_ranking):
            _require("ranking", one, (None, "logit"), "Others need the TensorFlow backend.")
        policies = "float32", "bfloat16"
        _require("compute_dtype", self.compute_dtype, policies, 'Use "mixed_bfloat16".')
        self.num_classes = whole_number("num_classes", num_classes, most=MOST_CLASSES)
        self.sampler = samplers.get(sampler, self.num_classes)
        self.use_bias = boolean("use_bias", use_bias)
        self.normalize = boolean("normalize", normalize)
        self.scale = arguments.checked_scale(scale)
        self.logit_soft_cap = arguments.checked_cap(logit_soft_cap)
        self.embeddings_dtype = arguments.checked_dtype(embeddings_dtype, self.variable_dtype)
        default = keras.initializers.VarianceScaling(0.25, "fan_out", "uniform")
        self.embeddings_initializer = _initializer(embeddings_initializer, default)
        self.bias_initializer = _initializer(bias_initializer, keras.initializers.Zeros())
        if isinstance(embeddings, dict):
            embeddings = keras.saving.deserialize_keras_object(embeddings)
        self.tied_layer = embeddings if isinstance(embeddings, keras.layers.Layer) else None
        self._given = embeddings
        if embeddings is not None:
            arguments.refuse_initializer(embeddings_initializer)
            _check_tied(embeddings, self.num_classes, self.logit_soft_cap)
        self.embeddings: Any = None
        self.bias: Any = None
        self.logit_scale: Any = None
        self.seed_state: Any = None
        self.supports_masking = True
        self.input_spec = keras.layers.InputSpec(min_ndim=2)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        dim = arguments.known_width(self.name, input_shape)
        self._add_table(dim)
        if self.use_bias:
            shape = (self.num_classes,)
            self.bias = self._add_rows("bias", shape, self.bias_initializer)
        if self.scale == arguments.LEARNED:
            start = _SCALE_OF_COSINES if self.normalize else 1.0
            constant = keras.initializers.Constant(math.log(start))
            self.logit_scale = self.add_weight(
                name="logit_scale", shape=(), initializer=constant, autocast=False
            )
        if self.sampler is not None:
            seed = self.sampler.seed
            seed = random.randrange(2**31) if seed is None else seed
            self.seed_state = self.add_weight(
                name="seed_state",
                shape=(2,),
                dtype="uint32",
                initializer=_array([seed % 2**32, 0]),
                trainable=False,
                autocast=False,
            )
            self.sampler.build(self)
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: dim})
        self.built = True

    def build_from_config(self, config: dict[str, Any]) -> None:
        # If the tied layer is not built yet, the first call builds this layer.
        if self.tied_layer is None or self.tied_layer.built:
            super().build_from_config(config)

    def _add_table(self, dim: int) -> None:
        shape, dtype = (self.num_classes, dim), self.embeddings_dtype or self.variable_dtype
        if self._given is None:
            if jax.default_backend() == "cpu":
                size = math.prod(shape) * jnp.dtype(dtype).itemsize
                require_memory(size, f"The matrix of class rows {shape} in {dtype} takes", "")
            initializer = self.embeddings_initializer
            self.embeddings = self._add_rows("embeddings", shape, initializer, dtype)
            return
        if self.tied_layer is not None and not self.tied_layer.built:
            raise ValueError(
                f"Layer '{self.name}' shares the table of layer '{self.tied_layer.name}', "
                "which is not built yet. Call that layer first in the model."
            )
        table = self._given if self.tied_layer is None else self.tied_layer.embeddings
        if tuple(table.shape) != shape:
            raise ValueError(
                f"Layer '{self.name}' shares a table, which must have the shape {shape}, one "
                f"row per class, as wide as the features. Received: {tuple(table.shape)}."
            )
        table.has_row_gradients = True
        self.__dict__["embeddings"] = table  # else Keras would save it twice

    def _add_rows(self, name: str, shape: Any, initializer: Any, dtype: Any = None) -> Any:
        # Without autocast: mixed precision would cast all rows in each step.
        weight = self.add_weight(
            name=name, shape=shape, initializer=initializer, dtype=dtype, autocast=False
        )
        weight.has_row_gradients = True
        return weight

    def head(self, draws: bool = False) -> Head:
        """Returns what a step needs of the layer; `draws` is whether it draws classes."""
        if not self.built:
            raise ValueError(
                f"Layer '{self.name}' is not built yet. First call the model on data, or build "
                "it with its input shape."
            )
        scale = self.scale or (_SCALE_OF_COSINES if self.normalize else 1.0)
        if self.logit_scale is not None:
            scale = jnp.exp(value_of(self.logit_scale))
        form = Form(self.normalize, scale, self.logit_soft_cap)
        bias = None if self.bias is None else Table(self.bias)
        parts = self.name, self.num_classes, Table(self.embeddings), bias, form, self.sampler
        if not draws or self.sampler is None:
            return Head(*parts)
        seed, number = value_of(self.seed_state)
        self.seed_state.assign(jnp.stack([seed, number + 1]))
        return Head(*parts, jax.random.fold_in(jax.random.key(seed), number))

    def call(
        self, features: jax.Array, training: bool | None = None, exclude: Any = None
    ) -> jax.Array:
        tag = Tag(self.head(draws=bool(training)), features, bool(training))
        if exclude is not None:
            tag.exclude = _checked_exclude(exclude, tag.leading)
        self.__dict__["_tag"] = tag
        (table, bias, _), form = tag.head.classes, tag.head.form
        logits = form.queries(features) @ form.rows(table).T
        logits = form.capped(logits if bias is None else logits + bias)
        logits = logits.astype(self.compute_dtype)
        return logits if in_symbolic_scope() else attach(tag, logits)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.__dict__.pop("_tag", None)
        logits = super().__call__(*args, **kwargs)
        tag = self.__dict__.pop("_tag", None)
        if tag is None or in_symbolic_scope():
            return logits
        tag.mask = get_keras_mask(logits)
        if keras.distribution.distribution() is not None:  # Keras may have moved the logits
            logits = attach(tag, logits)
            if tag.mask is not None:
                set_keras_mask(logits, tag.mask)
        return logits

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*input_shape[:-1], self.num_classes)

    def top_k(
        self,
        features: Any,
        k: int,
        exclude: Any = None,
        allowed: Any = None,
        absolute: bool | None = None,
        scores: str = "logit",
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the `k` best classes exactly, see `retrieval.exact_top_k`."""
        _require("absolute", absolute, (None, False), "Others need the TensorFlow backend.")
        _require("scores", scores, ("logit",), "Others need the TensorFlow backend.")
        return retrieval.exact_top_k(self.head(), features, k, exclude, allowed)

    def class_embeddings(self) -> jax.Array:
        """Returns the class rows, float32 `[num_classes, dim]`, without the bias."""
        head = self.head()
        return head.form.rows(head.table.value)

    def class_biases(self) -> jax.Array | None:
        """Returns the biases, float32 `[num_classes]`; None without biases."""
        return None if self.bias is None else jnp.asarray(value_of(self.bias))

    def _own_weights(self) -> dict[str, Any]:
        names = ["embeddings"] if self._given is None else []
        weights = {n: getattr(self, n) for n in [*names, "bias", "logit_scale", "seed_state"]}
        return {name: weight for name, weight in weights.items() if weight is not None}

    def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
        """Saves the weights by name, in the form of the TensorFlow backend."""
        weights = self._own_weights()
        if self.sampler is not None:
            weights["seed_state"] = np.asarray(value_of(self.seed_state), np.int64)
            state = self.sampler.saved_state().items()
            weights |= {f"sampler_{name}": value for name, value in state}
        for name, weight in weights.items():
            store[name] = weight

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Loads weights of either backend; large tables may be in pieces."""
        found = _joined(store)
        for name, weight in self._own_weights().items():
            if name == "seed_state":
                if name in found:
                    weight.assign(np.asarray(found[name]).astype(np.uint32))
                continue
            if name not in found or tuple(found[name].shape) != tuple(weight.shape):
                received = {key: tuple(value.shape) for key, value in found.items()}
                raise ValueError(
                    f"The file does not fit layer '{self.name}': it needs '{name}' of shape "
                    f"{tuple(weight.shape)}. Received: {received}."
                )
            weight.assign(found[name])
        if self.sampler is not None:
            prefix = "sampler_"
            state = {key[len(prefix) :]: found[key] for key in found if key.startswith(prefix)}
            self.sampler.load_state(state)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "LargeOutput":
        # Keras would hide the error of a sampler that needs TensorFlow in one of its own.
        sampler = samplers.get(config.get("sampler"), config["num_classes"])
        return super().from_config({**config, "sampler": sampler})

    def get_config(self) -> dict[str, Any]:
        tied = self._given is not None
        if tied and self.tied_layer is None:
            raise ValueError(
                f"Layer '{self.name}' was given a table, and a config cannot say to which "
                "layer it belongs. Pass the layer: embeddings=layer, not layer.embeddings."
            )
        serialize = keras.saving.serialize_keras_object
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "sampler": serialize(self.sampler),
            "use_bias": self.use_bias,
            "embeddings_initializer": None if tied else _config_of(self.embeddings_initializer),
            "bias_initializer": _config_of(self.bias_initializer),
            "embeddings": serialize(self.tied_layer) if tied else None,
            "num_shards": 1,
            "normalize": self.normalize,
            "scale": self.scale,
            "logit_soft_cap": self.logit_soft_cap,
            "embeddings_dtype": self.embeddings_dtype,
        }


def _require(name: str, value: Any, values: tuple[Any, ...], advice: str) -> None:
    if value not in values:
        raise ValueError(
            f"`{name}` must be one of {values} on the JAX backend. Received: {value!r}. "
            f"{advice}"
        )


def _check_tied(given: Any, num_classes: int, cap: float | None) -> None:
    is_table = isinstance(given, keras.Variable)
    if not is_table and not isinstance(given, keras.layers.Embedding):
        raise ValueError(
            "`embeddings` must be a keras.layers.Embedding, or its table, a keras.Variable. "
            f"Received: {given!r} (of type {type(given).__name__}). For initial values use "
            "`embeddings_initializer`."
        )
    if not is_table and not getattr(given, "tie_weights", True):
        raise ValueError(f"`embeddings`: layer '{given.name}' must have tie_weights=True.")
    if not is_table and getattr(given, "logit_soft_cap", None) not in (None, cap):
        raise ValueError(
            f"`logit_soft_cap` must be that of layer '{given.name}' in `embeddings`, "
            f"{given.logit_soft_cap}. Received: logit_soft_cap={cap}."
        )
    num_rows = given.shape[0] if is_table else given.input_dim
    arguments.require_row_per_class(num_rows, num_classes)


def _checked_exclude(exclude: Any, leading: tuple[int, ...]) -> jax.Array:
    ids = jnp.asarray(exclude)
    if not jnp.issubdtype(ids.dtype, jnp.integer) or ids.shape[:-1] != leading:
        raise ValueError(
            "`exclude` must have a row of integer class ids for each example, shape "
            f"{(*leading, 'n')}, padded with -1. Received: shape {ids.shape} and dtype "
            f"{ids.dtype}."
        )
    return ids.astype(jnp.int32).reshape(math.prod(leading), ids.shape[-1])


def _array(values: Any) -> Any:
    """Returns an initializer that returns an array, of the shape of its weight."""
    values = np.asarray(values)

    def initializer(shape: Any, dtype: Any = None) -> jax.Array:
        if tuple(shape) != values.shape:
            raise ValueError(
                "An array of initial values must have the shape of the weight, "
                f"{tuple(shape)}. Received: an array of shape {values.shape}."
            )
        return jnp.asarray(values, dtype)

    return initializer


def _initializer(identifier: Any, default: Any) -> Any:
    if identifier is None:
        return default
    if not isinstance(identifier, np.ndarray | jax.Array | list | tuple):
        return keras.initializers.get(identifier)
    values = np.asarray(identifier, np.float32)
    if not np.isfinite(values).all():
        raise ValueError(
            "An array of initial values must be finite. Received: NaN or infinity."
        )
    return _array(values)


def _config_of(initializer: Any) -> Any:
    """Returns the config of an initializer; None for an array, which the weights replace."""
    is_keras = isinstance(initializer, keras.initializers.Initializer)
    return keras.saving.serialize_keras_object(initializer) if is_keras else None


def _joined(store: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arrays in a file by name; tables in pieces, `NAME.rows_...`, are joined."""
    pieces: dict[str, dict[int, Any]] = {}  # by the first row
    for name in store.keys():
        table, _, rows = name.partition(".rows_")
        pieces.setdefault(table, {})[int(rows.split("_")[0] or 0)] = store[name]
    tables = {name: [one[first] for first in sorted(one)] for name, one in pieces.items()}
    return {name: x[0] if len(x) == 1 else np.concatenate(x) for name, x in tables.items()}


keras_names.register_for_compile(losses.ALL_OBJECTS_DICT, metrics.ALL_OBJECTS_DICT)
