"""The base class of all samplers, their names, and which of them can be a tail."""

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import keras
import tensorflow as tf

from tf_largeout.arguments import int64_or_none, whole_number
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.ops import devices
from tf_largeout.sampled_values import DRAWS, HeadAndTail, SampledValues
from tf_largeout.sampler_arguments import copied_tail, require_free
from tf_largeout.sampler_arguments import named as named
from tf_largeout.types import Config, InitializerLike, TensorLike
from tf_largeout.variables.class_rows import RowShard
from tf_largeout.wrong_arguments import OF_SAMPLERS, refuse_wrong_arguments_of


class ClassLayer(Protocol):
    """What a sampler needs from the Keras layer whose classes it draws.

    `class_matrix` has the embeddings and biases of the classes. `seed_state` has the seed and
    the number of draws, int64 `[2]`, and is on the device of the layer.
    """

    @property
    def name(self) -> str: ...

    @property
    def num_classes(self) -> int: ...

    @property
    def class_matrix(self) -> ClassScorer: ...

    @property
    def seed_state(self) -> keras.Variable: ...

    def next_seed(self) -> tf.Tensor:
        """Returns int64 `[2]`, which differs from call to call and from replica to replica."""


class Sampler:
    """Draws the classes that a sampled loss compares with the labels of a training step.

    A subclass implements `draw` or `draw_after`. If it has state, it also implements `build`.
    If the state depends on the class embeddings, it implements `prepare` or `rows_changed`. A
    sampler that contains other samplers lists them in `parts`. Create the state with
    `add_weight`, so that it is saved, restored and distributed with the layer. Take seeds from
    `layer.next_seed()`.

    Every sampler guarantees three things. It returns the expected counts of its draws, or 1 if
    it searches without a tail. No gradient flows through it. With equal seeds, it draws the
    same classes. A sampler belongs to one layer. If building this layer fails, another layer
    can build the sampler.

    Args:
        num_sampled: Number of classes drawn, a positive int. A shared sample is used for all
            examples of the batch. With sequences, each position is an example.
        seed: Int that determines the random draws; None for a random seed.

    Attributes:
        searches: Whether the drawn classes depend on features or labels. Such a sampler cannot
            be the tail of another one.
        uses_previous: Whether the drawn classes depend on the previous label of the sequence.
            If so, `draw_after` is called instead of `draw`.
        needs_one_table: Whether it needs all class rows in one variable. Such a sampler cannot
            be used with `num_shards` above 1.
        supports_jit: Whether XLA can compile its steps. If not, a model whose layer has such a
            sampler is not compiled, and a warning says so.
        parts: The samplers that this one contains. The base class calls their `release` and
            `take_classes`.
    """

    searches = uses_previous = needs_one_table = False
    supports_jit = True
    parts: tuple["Sampler", ...] = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> "Sampler":
        refuse_wrong_arguments_of(cls, kwargs, OF_SAMPLERS)
        return super().__new__(cls)

    def __init__(self, num_sampled: int = 1024, seed: int | None = None) -> None:
        self.num_sampled = whole_number("num_sampled", num_sampled, most=2**31 - 1)
        self.seed = int64_or_none("seed", seed)
        self.num_classes = 0  # until `build`

    @property
    def counts_are(self) -> str:
        """What the expected counts mean. Losses use this to reject samplers they cannot use.

        * "draws", the default: the expected number of times that a class is drawn. A class may
          be drawn several times in one sample.
        * "probabilities": the probability that a class is drawn. A class is drawn at most once
          in a sample. If the sampler has a head and a tail, this describes the tail.
        * "none": 1 for each class, because the counts are unknown.
        """
        return DRAWS

    def build(self, layer: ClassLayer) -> None:
        """Creates the state of the sampler as weights of `layer`, with `add_weight`.

        The layer already has its `class_matrix`. Raises a ValueError if a layer has already
        built the sampler, or if it cannot draw from this number of classes.
        """
        self.require_free()
        self.num_classes = layer.num_classes

    def release(self) -> None:
        """Forgets the layer, whose build has failed: another one can build the sampler."""
        self.num_classes = 0
        for part in self.parts:
            part.release()

    def require_free(self) -> None:
        """Raises a ValueError if a layer has already built the sampler."""
        require_free(self)

    def require_built(self) -> None:
        """Raises a ValueError if no layer has built the sampler yet."""
        if not self.num_classes:
            raise ValueError(
                f"This {type(self).__name__} has no state: its layer is not built yet. Call "
                "the model on data, or build it with its input shape, first."
            )

    def add_weight(
        self,
        layer: keras.layers.Layer,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        initializer: InitializerLike,
        on_host: bool = False,
        shard: RowShard | None = None,
    ) -> keras.Variable:
        """Creates `sampler_{name}`, a weight of `layer` for state of the sampler, not trained.

        `name` is unique within the sampler; `shape`, `dtype` and `initializer` are as in
        `keras.layers.Layer.add_weight`. The weight is on the device of `layer.seed_state`,
        which is the CPU with stock operations, or with `on_host` on the CPU, for counters that
        decide what a step does. With a `shard` of the classes, it has the device of its rows,
        and a name with the shard's number. Raises a ValueError if the `tf.distribute` strategy
        cannot create variables of this type.
        """
        name = f"sampler_{name if shard is None else shard.name_of(name)}"
        anchor = layer.seed_state
        if shard is not None:  # a search structure, which is on the device of the rows
            anchor = shard.device_anchor
            if anchor is None:  # a table in one variable
                anchor = getattr(shard, "embeddings", layer.seed_state)
        scope = devices.host_scope if on_host else devices.device_scope_of
        with scope(anchor), self._error_of_strategy(dtype):
            weight = layer.add_weight(
                name=name,
                shape=shape,
                dtype=dtype,
                initializer=initializer,
                trainable=False,
                autocast=False,
            )
        setattr(layer, name, weight)  # tf.train.Checkpoint saves attributes
        return weight

    @contextlib.contextmanager
    def _error_of_strategy(self, dtype: str) -> Iterator[None]:
        """Explains the error of a strategy that cannot exchange values of type `dtype`."""
        try:
            yield
        except tf.errors.InvalidArgumentError as error:
            if not tf.distribute.has_strategy():
                raise
            raise ValueError(
                f"{type(self).__name__} has weights of type {dtype}, which "
                f"{type(tf.distribute.get_strategy()).__name__} cannot create. Use a static "
                "sampler, such as UniformSampler, or KernelTreeSampler or TopKSampler; or use "
                "MirroredStrategy, whose replicas are in one process. TensorFlow says: "
                f"{error.message.splitlines()[0]}"
            ) from error

    def sample(
        self,
        features: TensorLike | None,
        labels: TensorLike,
        layer: ClassLayer,
        previous: TensorLike | None = None,
        in_step: bool = True,
    ) -> SampledValues | HeadAndTail:
        """Draws classes for one training step, after `prepare`.

        Args:
            features: `[batch, dim]`, the queries of the layer: its inputs, or with `normalize`
                or a scale `layer.queries(inputs)`. For sequences each position is an example:
                `[batch * time, dim]`. Static samplers ignore the features.
            labels: int64 `[batch, num_labels]`, padded with -1.
            layer: The classes, and seeds. In a step, it is not the Keras layer that built this
                sampler, but a `Head` of it, with the attributes of a `ClassLayer`.
            previous: For samplers with `uses_previous`: int64 `[batch]`, the label of the
                previous position of the sequence, or -1. None if there are no sequences.
            in_step: Whether this is a training step; outside of one, it does not `prepare`.

        Returns:
            `SampledValues`, or `HeadAndTail`: classes per example and shared classes.
        """
        if in_step:
            self.prepare(layer)
        labels = tf.convert_to_tensor(labels, tf.int64)
        if features is not None:
            features = tf.cast(tf.stop_gradient(features), tf.float32)
        if self.uses_previous:
            if previous is None:
                previous = tf.fill(tf.shape(labels)[:1], -1)
            values = self.draw_after(tf.cast(previous, tf.int64), labels, layer)
        else:
            values = self.draw(features, labels, layer)
        on_host = contextlib.nullcontext() if self.searches else devices.host_ids_scope()
        with on_host:
            return tf.nest.map_structure(tf.stop_gradient, values)

    def prepare(self, layer: ClassLayer) -> None:
        """Updates the state before each draw, e.g. counts steps or rebuilds tables."""
        return  # AutoGraph cannot convert a function without a statement.

    def draw(
        self, features: tf.Tensor | None, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues | HeadAndTail:
        """Implements `sample`, with its arguments as tensors, without gradients."""
        raise NotImplementedError(f"{type(self).__name__} must implement `draw`.")

    def draw_after(
        self, previous: tf.Tensor, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues | HeadAndTail:
        """Implements `sample` for a sampler with `uses_previous`."""
        raise NotImplementedError(f"{type(self).__name__} must implement `draw_after`.")

    def rows_changed(self, ids: tf.Tensor, old_rows: tf.Tensor, layer: ClassLayer) -> None:
        """Called after each update of class embeddings by an optimizer of this package.

        After a dense gradient, `ids` contains all classes, which takes O(num_classes) time.
        Keras's own optimizers do not call it. A sampler that does not override it takes no
        extra time.

        Args:
            ids: int64 `[n]`, the updated classes. Ids may repeat; -1 is padding.
            old_rows: float32 `[n, dim]`, the embeddings before the update. The current ones are
                `layer.class_matrix.rows(ids)`.
            layer: As in `sample`.
        """

    def take_classes(self, before: Any, change: ClassChange) -> None:
        """Copies the state of a sampler whose layer had other classes.

        `resize_classes` calls it. By default, the state keeps its initial values. This is
        correct if the next step builds the state from the class embeddings. A subclass with
        other state, such as counts or step numbers, sets it here. `before` is a built sampler
        with the same config; `change` says which classes are kept, and their new ids.
        """
        for part, old in zip(self.parts, before.parts, strict=True):
            part.take_classes(old, change)

    def health(self, layer: ClassLayer) -> dict[str, Any]:
        """Returns numbers about the search structure by name, for monitoring; {} without one.

        Raises a ValueError if no layer has built the sampler.
        """
        self.require_built()
        return {}

    def get_config(self) -> Config:
        return {"num_sampled": self.num_sampled, "seed": self.seed}

    @classmethod
    def from_config(cls, config: Config) -> "Sampler":
        return cls(**config)


def may_be_tail(sampler: Sampler | type[Sampler]) -> bool:
    """Returns whether a sampler, or a class of them, can draw the shared tail of a search.

    Its expected counts must be correct for all classes. A tail gets no `rows_changed`.
    """
    cls = sampler if isinstance(sampler, type) else type(sampler)
    is_shared = bool(getattr(sampler, "shared", True))
    return is_shared and not sampler.searches and cls.rows_changed is Sampler.rows_changed


def make_tail(identifier: Sampler | Config | str | None, num_sampled: int) -> Sampler:
    """Returns a copy of a sampler, not built, with another `num_sampled`.

    It raises a ValueError unless `may_be_tail`, or if a layer has built the sampler.
    """
    return copied_tail(identifier, num_sampled, Sampler, may_be_tail)
