"""`LargeOutput`: the last layer of a model with very many classes."""

import random
from collections.abc import Mapping, MutableMapping
from typing import Any

import keras
import tensorflow as tf

from tf_largeout import samplers
from tf_largeout.arguments import MOST_CLASSES, boolean, whole_number
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.classes.class_matrix import ClassMatrix
from tf_largeout.layers import initial_values, saved_weights, shard_weights
from tf_largeout.layers.class_output import ClassOutput
from tf_largeout.layers.tied_embeddings import TiedEmbeddings, refuse_initializer
from tf_largeout.ops import devices
from tf_largeout.tags.lazy_logits import LazyLogits
from tf_largeout.types import Config, InitializerLike, Shape, TensorLike
from tf_largeout.variables import replicas, sharded_checkpoint, sharded_table
from tf_largeout.variables.sharded_table import ShardedTable


@keras.saving.register_keras_serializable(package="tf_largeout")
class LargeOutput(ClassOutput):
    """Scores `num_classes` classes as `features @ class_embeddings.T + bias`.

    To a model it is a `Dense` layer without activation: it returns logits, `predict` gives
    them, and any Keras loss or metric works on them. With the losses and metrics of
    `tf_largeout`, which recognise its output, those logits are never computed: a training
    step scores the labels and the classes that `sampler` draws, so its cost does not depend
    on `num_classes`, and an evaluation step makes one exact pass over the classes that never
    holds `[batch, num_classes]`.

    With `run_eagerly=True`, or in a loop outside of `tf.function`, TensorFlow cannot prune the
    logits and each step costs O(num_classes); use it for debugging only.

    ```python
    model = keras.Sequential(
        [encoder, tflo.layers.LargeOutput(200_000, sampler=tflo.samplers.UniformSampler(1024))]
    )
    model.compile(
        optimizer=tflo.optimizers.LazyAdam(3e-3), loss=tflo.losses.SampledSoftmaxLoss()
    )
    ```

    Args:
        num_classes: Number of classes `N`, from 1 to 2^31 - 2.
        sampler: Which classes a sampled loss scores besides the labels: a
            `tf_largeout.samplers.Sampler`, or the name of one, which then draws 1,024 classes,
            or half of them where there are fewer than 2,048; or None. Without one only
            `SoftmaxLoss` and Keras losses can train the layer.
        use_bias: Whether each class has a bias.
        embeddings_initializer: Initializer of the class embeddings. By default uniform with
            variance `1 / (4 dim)`, rows of length 1/2: long enough to give the encoder a
            gradient from the first step on (zeros do not), short enough for the first updates
            to turn them, whatever the number of classes (Glorot's rule lets them vanish). An
            array `[num_classes, dim]` gives the rows themselves; the config leaves it out, as
            the rows are saved with the weights.
        bias_initializer: Initializer of the biases, or an array `[num_classes]` as above.
            `NCELoss` takes logits for log probabilities, which sum to 1 at the start with
            `keras.initializers.Constant(-math.log(num_classes))`.
        embeddings: A layer whose table of embeddings is to be that of the classes too, so that
            input and output share it: a `keras.layers.Embedding`, `ReversibleEmbedding` or
            `tf_largeout.layers.EmbeddingBag` with `input_dim=num_classes`, which the model
            calls before. A `ReversibleEmbedding` must have tied weights and no soft cap. Or the
            table, a `keras.Variable`; then the model cannot be saved as a `.keras` file, as a
            config cannot say whose it is. None, the default, for a table
            of the layer's own. A layer that is shared is a part of this one: to freeze the one
            (`trainable = False`) freezes the other.
        num_shards: In how many ranges of classes, a weight each, the embeddings and biases are
            kept, at most `num_classes`. After `tf_largeout.distribute.connect` shard i is on
            server i, modulo their number, with its optimizer slots; else all are in this
            process. Losses, metrics, best classes and files are those of one shard.
        **kwargs: Of `keras.layers.Layer`; and `ranking`, "logit" or "absolute", by which
            `top_k`, metrics and exports rank the classes. By default it is that of the loss
            that trains the layer.

    Call arguments:
        features: `[batch, dim]` or `[batch, ..., dim]`; integers are cast to floats.
        training: Whether the step trains. Sampled losses are exact, and cost O(num_classes),
            where it does not: pass `training=True` in a training loop of your own.

    Output shape:
        `[batch, ..., num_classes]`, of the layer's compute dtype.

    Files of Keras keep the weights by name, so `load_weights` takes them into a layer with
    another sampler, or none: its state then starts anew.

    Attributes:
        embeddings: Keras variable `[num_classes, dim]`, one row per class; None in shards.
        bias: Keras variable `[num_classes]`, or None.

    Raises:
        ValueError: If `num_classes` or `num_shards` is no integer in range, `use_bias` is no
            bool, there is an `activity_regularizer` (it would need all logits in each step), an
            array of initial values has another shape than its weight, the input has no last
            dimension or fewer than two, or something does not go with shards; the message says
            what does.
    """

    rankings = ("logit", "absolute")

    def __init__(
        self,
        num_classes: int,
        sampler: samplers.Sampler | str | None = None,
        use_bias: bool = True,
        embeddings_initializer: InitializerLike | TensorLike | None = None,
        bias_initializer: InitializerLike | TensorLike | None = "zeros",
        embeddings: keras.layers.Layer | keras.Variable | None = None,
        num_shards: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_classes = whole_number("num_classes", num_classes, most=MOST_CLASSES)
        self.num_shards = shard_weights.checked_count(
            num_shards, self.num_classes, embeddings is not None
        )
        self.sampler = samplers.get(sampler, self.num_classes)
        self.use_bias = boolean("use_bias", use_bias)
        self.embeddings_initializer = initial_values.of_embeddings(embeddings_initializer)
        self.bias_initializer = initial_values.of_biases(bias_initializer)
        self.embeddings: keras.Variable = None
        self._tied = self.tied_layer = None
        if embeddings is not None:
            self._tied = TiedEmbeddings(embeddings, self.num_classes, self.name)
            self.tied_layer = self._tied.layer  # Keras then trains and saves it with this layer
            refuse_initializer(embeddings_initializer)
        self.bias: keras.Variable = None
        self.class_matrix: ClassMatrix = None  # type: ignore[assignment]  # until built
        self.seed_state: keras.Variable = None

    def build(self, input_shape: Shape) -> None:
        dim = self.width_of(input_shape)
        if self.sampler is not None:
            self.sampler.require_free()
        others = set(map(id, self.weights))  # those of a tied layer
        try:
            self._add_weights(dim)
        except BaseException:
            self._remove_weights_but(others)
            raise
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: dim})
        self.built = True

    def build_from_config(self, config: Config) -> None:
        # The layer to share with may be built later; the first call then builds this one.
        if self.tied_layer is None or self.tied_layer.built:
            super().build_from_config(config)

    def __call__(self, features: TensorLike, *args: Any, **kwargs: Any) -> tf.Tensor:
        if self._tied is not None and self.class_matrix is None:
            self.built = False  # also where Keras says so of a layer made from a config
            if self._tied.look_for_layer(features):
                del self.tied_layer  # Keras then forgets the copy
                self.tied_layer = self._tied.layer
        return super().__call__(features, *args, **kwargs)

    def _add_weights(self, dim: int) -> None:
        if self.num_shards > 1:
            self.class_matrix = shard_weights.add_matrix(self, dim)
        else:
            self._add_tables(dim)
        if self.sampler is not None:
            self.seed_state = self._add_seed_state(self.sampler.seed)
            self.sampler.build(self)
            if type(self.sampler).rows_changed is not samplers.Sampler.rows_changed:
                self.class_matrix.on_rows_changed(self._tell_sampler)

    def _add_tables(self, dim: int) -> None:
        if self._tied is None:
            self.embeddings = self.add_class_weight(
                "embeddings", (self.num_classes, dim), self.embeddings_initializer
            )
        elif self.tied_layer is None:
            self.embeddings = self._tied.table(dim)
        else:
            # Not by an assignment, which would make it a weight of this layer, saved twice.
            self.__dict__["embeddings"] = self._tied.table(dim)
        if self.use_bias:
            self.bias = self.add_class_weight(
                "bias", (self.num_classes,), self.bias_initializer
            )
        self.class_matrix = ClassMatrix(self.embeddings, self.bias, self.name)

    def _tell_sampler(self, ids: tf.Tensor, old_rows: tf.Tensor) -> None:
        if self.sampler is not None:
            self.sampler.rows_changed(tf.cast(ids, tf.int64), old_rows, self)

    def _remove_weights_but(self, others: set[int]) -> None:
        """As before a build that failed: layer and sampler can be built with what is right."""
        for name, value in list(vars(self).items()):
            if isinstance(value, keras.Variable) and id(value) not in others:
                delattr(self, name)  # Keras then forgets the weight
        self.embeddings = self.bias = self.seed_state = None
        self.class_matrix = None  # type: ignore[assignment]
        if self.sampler is not None:
            self.sampler.release()

    def _add_seed_state(self, seed: int | None) -> keras.Variable:
        # A weight, because `.keras` files leave the state of a `SeedGenerator` out, and a
        # resumed run must draw what the uninterrupted one draws.
        seed = random.randrange(2**31) if seed is None else seed
        with devices.supported_device_scope():
            return self.add_weight(
                name="seed_state",
                shape=(2,),
                dtype="int64",
                initializer=lambda shape, dtype: tf.constant([seed, 0], dtype),
                trainable=False,
                autocast=False,
                aggregation="only_first_replica",
            )

    def make_tag(self, features: tf.Tensor, training: bool | None) -> LazyLogits:
        if self._tied is not None:
            self._tied.check_shared(self.embeddings)
        return LazyLogits(self, features, training)

    def next_seed(self) -> tf.Tensor:
        """Two int64 numbers, new at each call and other ones on each replica."""
        seed = tf.identity(self.seed_state.value)
        self.seed_state.assign(seed + [0, 1])
        return seed + [replicas.replica_id() << 32, 0]

    def changed_attributes(
        self, change: ClassChange
    ) -> list[tuple[keras.layers.Layer, str, int]]:
        shard_weights.checked_count(self.num_shards, change.num_classes, is_tied=False)
        changed = super().changed_attributes(change)
        if self._tied is not None:
            changed.append(self._tied.changed_attribute(change))
        return changed

    def take_classes(
        self, before: Any, change: ClassChange, new_rows: tf.Tensor | None
    ) -> list[tuple[keras.Variable, ClassChange]]:
        moved = [] if self.bias is None else [self.bias]
        olds, news = sharded_table.whole(before.variables), sharded_table.whole(self.variables)
        for old, new in zip(olds, news, strict=True):
            if isinstance(new, ShardedTable):
                others = new_rows if new.name == "embeddings" else None
                new.take_rows(old, change.kept, others)
                moved += new.shards
            elif new is self.embeddings:
                change.move_rows(old, new, new_rows)
                moved.append(new)
            elif new is self.bias:
                change.move_rows(old, new)
            elif change.is_identity or not saved_weights.is_of_sampler(new.name):
                change.copy(old, new)
        if self.sampler is not None and not change.is_identity:
            self.seed_state.assign(before.seed_state)
            self.sampler.take_classes(before.sampler, change)
        return [(variable, change) for variable in moved]

    def save_own_variables(self, store: MutableMapping[str, Any]) -> None:
        saved_weights.save(self, store)

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        if not self.built:
            super().load_own_variables(store)  # which says so
        saved_weights.load(self, store)

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> Any:
        children = super()._trackable_children(save_type, **kwargs)
        return sharded_checkpoint.children(self, children)

    def get_config(self) -> Config:
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "sampler": keras.saving.serialize_keras_object(self.sampler),
            "use_bias": self.use_bias,
            "embeddings_initializer": (
                None if self._tied else initial_values.serialize(self.embeddings_initializer)
            ),
            "bias_initializer": initial_values.serialize(self.bias_initializer),
            "embeddings": None if self._tied is None else self._tied.serialize(),
            "num_shards": self.num_shards,
        }
