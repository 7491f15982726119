"""`LargeOutput`: the last layer of a model with very many classes."""

import math
import random
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import keras
import tensorflow as tf

from tf_largeout import samplers
from tf_largeout.arguments import (
    MOST_CLASSES,
    boolean,
    memory_of_machine,
    require_memory,
    whole_number,
)
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.classes.class_scorer import RowScorer
from tf_largeout.classes.row_sources import LogitForm, RowSource, tables_of
from tf_largeout.classes.tied_embeddings import TiedEmbeddings
from tf_largeout.classes.tower_rows import TowerRows
from tf_largeout.layer_arguments import (
    LEARNED,
    checked_cap,
    checked_dtype,
    checked_scale,
    refuse_initializer,
)
from tf_largeout.layers.class_output import ClassOutput
from tf_largeout.layers.item_tower import ItemTower
from tf_largeout.ops import devices
from tf_largeout.steps.output_tag import SampledTag
from tf_largeout.types import Config, InitializerLike, Shape, TensorLike
from tf_largeout.variables import class_rows, initializers, saved_weights
from tf_largeout.variables.class_rows import ShardedTable

_SCALE_OF_COSINES = 64.0  # of ArcFace


@keras.saving.register_keras_serializable(package="tf_largeout")
class LargeOutput(ClassOutput):
    """Scores `num_classes` classes as `features @ class_embeddings.T + bias`.

    Use it like a `Dense` layer without activation. It returns logits, as `predict` does, and
    any Keras loss or metric can use these logits. The losses and metrics of `tf_largeout` do
    not use them. With these losses and metrics, the logits are never computed: a training step
    scores only the labels and the classes that `sampler` draws, so its time does not depend on
    `num_classes`. An evaluation step makes one exact pass over the classes and never stores a
    `[batch, num_classes]` tensor.

    With `run_eagerly=True`, or in a loop outside of `tf.function`, TensorFlow computes all
    logits, and each step takes O(num_classes) time. Use this only for debugging.

    ```python
    model = keras.Sequential(
        [encoder, tflo.layers.LargeOutput(200_000, sampler=tflo.samplers.UniformSampler(1024))]
    )
    model.compile(tflo.optimizers.LazyAdam(3e-3), tflo.losses.SampledSoftmaxLoss())
    ```

    Args:
        num_classes: Number of classes `N`, from 1 to 2^31 - 2.
        sampler: Draws the classes that a sampled loss scores in addition to the labels. A
            `tf_largeout.samplers.Sampler`, or its name, or None. A sampler created by name
            draws 1,024 classes, but at most half of all classes. Without a sampler only
            `SoftmaxLoss` and Keras losses can train the layer.
        use_bias: Whether each class has a bias.
        embeddings_initializer: Initializer of the class embeddings, or an array `[num_classes,
            dim]`, which is not stored in the config. By default uniform with variance `1 / (4
            dim)`, so that rows have length 1/2. Such rows are long enough for the encoder to
            get a useful gradient from the first step on, and short enough that the first
            updates change their directions. With Glorot's rule, rows would be shorter the more
            classes there are.
        bias_initializer: Initializer of the biases, or an array `[num_classes]` as above.
            For `NCELoss`, which treats logits as log-probabilities, use
            `keras.initializers.Constant(-math.log(num_classes))`. The probabilities then sum to
            about 1 at the start.
        embeddings: A layer whose table of embeddings is also the table of the class embeddings
            (tied embeddings). It is a `keras.layers.Embedding`, `ReversibleEmbedding` or
            `tf_largeout.layers.EmbeddingBag` with `input_dim=num_classes`, and the model must
            call it before this layer. A `ReversibleEmbedding` must have tied weights, and no
            other soft cap than this layer. If you freeze one of the two layers (`trainable =
            False`), the other is also frozen. Or the table itself, a `keras.Variable`; the
            model can then not be saved as a `.keras` file. Or an `ItemTower`, which computes
            the class rows from features of the classes. None, the default, creates a table.
        num_shards: Number of ranges of classes into which the embeddings and biases are
            divided, one weight per range; at most `num_classes`. After
            `tf_largeout.distribute.connect`, shard i and its optimizer slots are on server `i %
            num_servers`. Otherwise all shards are in this process. Losses, metrics, `top_k` and
            saved files are the same as with one shard.
        normalize: Whether to divide features and class rows by their lengths. The logits are
            then `scale * cos(h, w_c) + b_c`, as in ArcFace (Deng et al. 2019). Rows are
            normalized when they are read, so gradients of sampled losses stay sparse. A vector
            of zeros has the cosine 0. `class_embeddings()` returns normalized rows, and
            samplers search in them. Exact losses do not support compute_dtype="bfloat16".
        scale: Number above 0 that multiplies the products of features and class rows, before
            the bias. It is the inverse of the temperature of the softmax. "learned" trains it:
            the weight `logit_scale` stores its log, as in CLIP (Radford et al. 2021). None, the
            default, is 64 with `normalize`, as in ArcFace, and 1 without. "learned" starts with
            this number.
        logit_soft_cap: Number c above 0: the logits are `c * tanh(o / c)`, after the bias, as
            in Gemma 2. Sampled losses cap the logits before they subtract log counts. The order
            of the classes stays the same. None, the default, means no cap. Exact losses with a
            cap do not support compute_dtype="bfloat16".
        embeddings_dtype: "bfloat16" stores the class rows in 16 bits per number, in half the
            memory. All computations, optimizer slots and biases are in float32. None, the
            default, stores them in the variable dtype of the dtype policy, which is "float32"
            by default. The optimizers of `tf_largeout` update rows in bfloat16 with stochastic
            rounding (Gupta et al. 2015), so that small updates are not lost: the expected value
            of each number is exact. The random bits depend on the step and the row, so equal
            runs give equal rows. Keras's optimizers would lose small updates; `fit` with one
            raises an error. A table that another layer shares (`embeddings`) must itself
            be bfloat16. GPUs, and exact losses with compute_dtype="bfloat16", are not
            supported. `class_embeddings()`, `join_models` and indexes copy the rows in float32.
        **kwargs: Arguments of `ClassOutput`.

    The calls, and the other arguments, are those of `ClassOutput`. If a step does not train,
    sampled losses are exact and take O(num_classes) time. Pass `training=True` in your own
    training loop. Keras files store the weights by name. So `load_weights` also works for a
    layer with another sampler, or without one; the state of the sampler is then not loaded.

    Attributes:
        embeddings: Keras variable `[num_classes, dim]`, one row per class; None if the layer
            has shards.
        logit_scale: Keras variable, float32 scalar, the log of a learned scale; else None.
        bias: Keras variable `[num_classes]`; None without biases, or if the layer has shards.

    Raises:
        ValueError: If an argument has the wrong type or is out of range, an array of initial
            values does not have the shape of its weight, or two arguments cannot be combined;
            if the input has fewer than two dimensions or an unknown last dimension; or if the
            class rows are larger than the memory of this machine.
    """

    rankings = ("logit", "absolute")
    tag_class = SampledTag

    def __init__(
        self,
        num_classes: int,
        sampler: samplers.Sampler | str | None = None,
        use_bias: bool = True,
        embeddings_initializer: InitializerLike | TensorLike | None = None,
        bias_initializer: InitializerLike | TensorLike | None = "zeros",
        embeddings: keras.layers.Layer | keras.Variable | None = None,
        num_shards: int = 1,
        normalize: bool = False,
        scale: float | str | None = None,
        logit_soft_cap: float | None = None,
        embeddings_dtype: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.embeddings_dtype = checked_dtype(embeddings_dtype, self.variable_dtype)
        self.normalize = boolean("normalize", normalize)
        self.scale, self.logit_soft_cap = checked_scale(scale), checked_cap(logit_soft_cap)
        self.num_classes = whole_number("num_classes", num_classes, most=MOST_CLASSES)
        self.num_shards = _checked_num_shards(
            num_shards, self.num_classes, embeddings is not None
        )
        self.sampler = samplers.get(sampler, self.num_classes)
        self.use_bias = boolean("use_bias", use_bias)
        self.embeddings_initializer = initializers.get_for_embeddings(embeddings_initializer)
        self.bias_initializer = initializers.get_for_biases(bias_initializer)
        self.embeddings: keras.Variable = None
        self._tied = self.tied_layer = self.tower = None
        if isinstance(embeddings, dict):
            embeddings = keras.saving.deserialize_keras_object(embeddings)
        if isinstance(embeddings, ItemTower):
            self.tower = _checked_tower(embeddings, self.num_classes, self.embeddings_dtype)
            refuse_initializer(embeddings_initializer)
        elif embeddings is not None:
            self._tied = TiedEmbeddings(
                embeddings, self.num_classes, self.name, self.logit_soft_cap
            )
            self.tied_layer = self._tied.layer  # Keras trains and saves it with this layer
            refuse_initializer(embeddings_initializer)
        self.bias: keras.Variable = None
        self.logit_scale: keras.Variable = None
        self.class_matrix: RowScorer = None  # type: ignore[assignment]  # until built
        self.seed_state: keras.Variable = None

    def build(self, input_shape: Shape) -> None:
        dim = self.width_of(input_shape)
        if self.sampler is not None:
            self.sampler.require_free()
        tied = set(map(id, self.weights))
        try:
            self._add_weights(dim)
        except BaseException:
            self._remove_weights_except(tied)
            raise
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: dim})
        self.built = True

    def build_from_config(self, config: Config) -> None:
        # If the tied layer is not built yet, the first call builds this layer. The first call
        # also finds the encoder of a tower that encodes the inputs as well.
        waits = self.tower is not None and self.tower.shares_encoder
        if not waits and (self.tied_layer is None or self.tied_layer.built):
            super().build_from_config(config)

    def __call__(self, features: TensorLike, *args: Any, **kwargs: Any) -> tf.Tensor:
        if self._tied is not None and self.class_matrix is None:
            self.built = False  # Keras sets it for a layer that is made from a config
            if self._tied.look_for_layer(features):
                del self.tied_layer  # removes the copy from the layers that Keras tracks
                self.tied_layer = self._tied.layer
        if self.tower is not None and self.class_matrix is None:
            self.built = False  # as above
            self.tower.find_encoder(features)
        if self._tied is not None and self.class_matrix is not None:
            self._tied.check_shared(self.embeddings)
        return super().__call__(features, *args, **kwargs)

    def _add_weights(self, dim: int) -> None:
        if self.tower is not None:
            if not self.tower.built:
                self.tower.build((None, dim))
            self._add_bias()
            options = self.bias, (self.num_classes, dim), self.name, self.normalize
            source: RowSource = TowerRows(self.tower, *options)
        elif self.num_shards > 1:
            source = self._add_shards(dim)
        else:
            source = self._add_tables(dim)
        scale: Any = _SCALE_OF_COSINES if self.normalize else 1.0
        if self.scale == LEARNED:
            self.logit_scale = scale = self.add_class_weight(
                "logit_scale", (), keras.initializers.Constant(math.log(scale))
            )
        elif self.scale is not None:
            scale = self.scale
        form = LogitForm(self.normalize, scale, self.logit_soft_cap)
        self.class_matrix = RowScorer(source, form)
        if self.sampler is not None:
            self.seed_state = self._add_seed_state(self.sampler.seed)
            self.sampler.build(self)
            if self._sampler_follows_rows():  # never with several shards
                self.class_matrix.shards()[0].on_rows_changed(self._notify_sampler)

    def _add_tables(self, dim: int) -> RowSource:
        if self._tied is None:
            shape, dtype = (self.num_classes, dim), self.embeddings_dtype
            _require_memory_for(shape, dtype or self.variable_dtype)
            self.embeddings = self.add_class_weight(
                "embeddings", shape, self.embeddings_initializer, dtype
            )
        elif self.tied_layer is None:
            self.embeddings = self._tied.table(dim, self.embeddings_dtype)
        else:
            # A plain assignment would make it a weight of this layer, and Keras would save it
            # twice.
            self.__dict__["embeddings"] = self._tied.table(dim, self.embeddings_dtype)
        self._add_bias()
        biases = [self.bias] if self.use_bias else None
        return RowSource(tables_of([self.embeddings], biases, self.name, self.normalize))

    def _add_bias(self) -> None:
        if self.use_bias:
            self.bias = self.add_class_weight(
                "bias", (self.num_classes,), self.bias_initializer
            )

    def _add_shards(self, dim: int) -> RowSource:
        class_rows.require_placement(self.name, self.num_shards)
        if self.sampler is not None and (
            self.sampler.needs_one_table or self._sampler_follows_rows()
        ):
            raise ValueError(
                f"{type(self.sampler).__name__} of layer '{self.name}' reads all rows in one "
                "variable (`needs_one_table`) or follows their updates (`rows_changed`), so it "
                "does not support num_shards above 1. Use a sampler of `tf_largeout`, all of "
                "which support shards, or num_shards=1."
            )
        shape, initializer = (self.num_classes, dim), self.embeddings_initializer
        options = initializer, "embeddings_initializer", self.embeddings_dtype
        embeddings = class_rows.add_shards(self, "embeddings", shape, *options)
        biases = None
        if self.use_bias:
            biases = class_rows.add_shards(
                self, "bias", (self.num_classes,), self.bias_initializer, "bias_initializer"
            )
        return RowSource(tables_of(embeddings, biases, self.name, self.normalize))

    def _sampler_follows_rows(self) -> bool:
        return type(self.sampler).rows_changed is not samplers.Sampler.rows_changed  # type: ignore[union-attr]

    def _notify_sampler(self, ids: tf.Tensor, old_rows: tf.Tensor) -> None:
        if self.sampler is not None:
            self.sampler.rows_changed(tf.cast(ids, tf.int64), old_rows, self)

    def _remove_weights_except(self, kept: set[int]) -> None:
        """Undoes a build that failed, so that layer and sampler can be built again."""
        for name, value in list(vars(self).items()):
            if isinstance(value, keras.Variable) and id(value) not in kept:
                delattr(self, name)  # removes it from the weights that Keras tracks
        self.embeddings = self.bias = self.logit_scale = self.seed_state = None
        self.class_matrix = None  # type: ignore[assignment]
        if self.sampler is not None:
            self.sampler.release()

    def _add_seed_state(self, seed: int | None) -> keras.Variable:
        # A weight, because `.keras` files do not have the state of a `SeedGenerator`. A
        # resumed run must draw the same classes as a run that was not interrupted.
        seed = random.randrange(2**31) if seed is None else seed
        with devices.supported_device_scope(), devices.host_ids_scope():
            return self.add_weight(
                name="seed_state",
                shape=(2,),
                dtype="int64",
                initializer=lambda shape, dtype: tf.constant([seed, 0], dtype),
                trainable=False,
                autocast=False,
                aggregation="only_first_replica",
            )

    def scale_value(self) -> float | tf.Tensor:
        """Returns the number that multiplies the logits before the bias; float32 if learned."""
        return self.class_matrix.form.scale_value()

    def next_seed(self) -> tf.Tensor:
        """Returns two int64 numbers that differ at each call and on each replica."""
        return self.head().next_seed()

    def why_not_compiled(self) -> str | None:
        reason = super().why_not_compiled()
        if reason is None and self.num_shards > 1:
            return (
                f"it has num_shards={self.num_shards}, and XLA compiles steps of one device. "
                "Use num_shards=1, or leave jit_compile=True out."
            )
        if reason is None and self.embeddings_dtype == "bfloat16":
            return (
                "XLA for CPUs would convert all its bfloat16 rows in each step. Use float32 "
                "rows, or leave jit_compile=True out."
            )
        if reason is None and self.sampler is not None and not self.sampler.supports_jit:
            return (
                f"XLA cannot compile its {type(self.sampler).__name__}. Use a static sampler, "
                "such as UniformSampler, or a TopKSampler, or leave jit_compile=True out."
            )
        return reason

    def row_variables(self) -> list[keras.Variable]:
        if self.tower is None:
            return super().row_variables()
        return [] if self.tower.free_rows is None else [self.tower.free_rows]

    def score_bound(self, largest: Callable[[str, tf.Tensor], float]) -> float:
        if self.tower is None:  # the queries are scaled already
            return super().score_bound(lambda *one: largest(*one) * (one[0] != "logit_scale"))
        of_rows = largest("class_embeddings", self.class_embeddings())
        return of_rows if self.bias is None else max(of_rows, largest("bias", self.bias.value))

    def changed_attributes(
        self, change: ClassChange
    ) -> list[tuple[keras.layers.Layer, str, int]]:
        _checked_num_shards(self.num_shards, change.num_classes, is_tied=False)
        changed = super().changed_attributes(change)
        if self._tied is not None:
            changed.append(self._tied.changed_attribute(change))
        if self.tower is not None:
            changed.append(self.tower.changed_attribute(change))
        return changed

    def take_classes(
        self, before: Any, change: ClassChange, new_rows: tf.Tensor | None
    ) -> list[tuple[keras.Variable, ClassChange]]:
        moved: list[keras.Variable] = []
        rows_of_new = {id(self.embeddings): new_rows, id(self.bias): None}
        if self.tower is not None:
            rows_of_new |= self.tower.rows_of_new(change)
        olds, news = map(class_rows.join_shards, (before.variables, self.variables))
        for old, new in zip(olds, news, strict=True):
            if isinstance(new, ShardedTable):
                others = new_rows if new.name == "embeddings" else None
                new.take_rows(old, change.kept, others)
                moved += new.shards
            elif id(new) in rows_of_new:
                change.move_rows(old, new, rows_of_new[id(new)])
                moved.append(new)
            elif change.is_identity or not saved_weights.is_of_sampler(new.name):
                change.copy(old, new)
        if self.sampler is not None and not change.is_identity:
            self.seed_state.assign(before.seed_state)
            self.sampler.take_classes(before.sampler, change)
        return [(variable, change) for variable in moved]

    def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
        saved_weights.save(self._named_weights(), store)

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        if not self.built:
            super().load_own_variables(store)  # raises an error that says so
        sampler = None if self.sampler is None else type(self.sampler).__name__
        saved_weights.load(self._named_weights(), store, self.name, sampler)

    def _named_weights(self) -> dict[str, keras.Variable | ShardedTable]:
        """Returns the weights by name, without those of other layers; shards as one table."""
        layers = [one for one in (self.tied_layer, self.tower) if one is not None]
        tied = {id(weight) for layer in layers for weight in layer.weights}
        weights = class_rows.join_shards(one for one in self.weights if id(one) not in tied)
        # A table that was given as a variable may have any name.
        return {"embeddings" if one is self.embeddings else one.name: one for one in weights}

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        children = super()._trackable_children(save_type, **kwargs)
        return saved_weights.children(self, children)

    def get_config(self) -> Config:
        source = self._tied or self.tower
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "sampler": keras.saving.serialize_keras_object(self.sampler),
            "use_bias": self.use_bias,
            "embeddings_initializer": (
                None if source else initializers.serialize(self.embeddings_initializer)
            ),
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "embeddings": None if source is None else source.serialize(),
            "num_shards": self.num_shards,
            "normalize": self.normalize,
            "scale": self.scale,
            "logit_soft_cap": self.logit_soft_cap,
            "embeddings_dtype": self.embeddings_dtype,
        }


def _checked_tower(
    tower: ItemTower, num_classes: int, embeddings_dtype: str | None
) -> ItemTower:
    """Returns `tower`, which must have one row per class."""
    if embeddings_dtype not in (None, "float32"):
        raise ValueError(
            "An ItemTower computes the class rows in float32. Received: both an ItemTower and "
            f"embeddings_dtype='{embeddings_dtype}'. Leave one of them out."
        )
    if tower.num_classes != num_classes:
        raise ValueError(
            f"`embeddings` must have the features of all {num_classes} classes. Received: an "
            f"ItemTower of {tower.num_classes} classes."
        )
    if tf.distribute.get_strategy().num_replicas_in_sync > 1:
        raise ValueError(
            "An ItemTower does not support several replicas. Received: a strategy with "
            f"{tf.distribute.get_strategy().num_replicas_in_sync}. Train on one device."
        )
    return tower


def _checked_num_shards(num_shards: int, num_classes: int, is_tied: bool) -> int:
    """Returns `num_shards` as an int, from 1 to `num_classes`; 1 for tied embeddings."""
    count = whole_number("num_shards", num_shards)
    if count > num_classes:
        raise ValueError(
            "`num_shards` must be at most the number of classes, so that each shard has one. "
            f"Received: num_shards={count}, num_classes={num_classes}."
        )
    if is_tied and count > 1:
        raise ValueError(
            "`num_shards` must be 1 if `embeddings` is given, because the rows of another "
            f"layer or of an ItemTower have no shards. Received: num_shards={count}. Leave "
            "`embeddings` out, or use num_shards=1."
        )
    return count


def _require_memory_for(shape: tuple[int, int], dtype: str) -> None:
    """Raises an error for a matrix of class rows that does not fit into this machine."""
    if tf.distribute.has_strategy() or tf.config.get_visible_devices("GPU"):
        return  # the rows may be elsewhere
    numbers = shape[0] * shape[1]
    advice = "Lower the width of the features, or use several machines (`num_shards`)."
    if dtype == "float32" and 2 * numbers < memory_of_machine():
        advice = f'`embeddings_dtype="bfloat16"` takes half of this. {advice}'
    require_memory(
        numbers * tf.as_dtype(dtype).size,
        f"The matrix of {shape[0]:,} class rows of width {shape[1]} in {dtype}, without the "
        "state of the optimizer, takes",
        advice,
    )
