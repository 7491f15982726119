"""The base class of all samplers."""

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import keras
import tensorflow as tf

from tf_largeout.arguments import seed_or_none, whole_number
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.classes.class_shard import ClassShard
from tf_largeout.ops import devices
from tf_largeout.sampled_values import DRAWS, HeadAndTail, SampledValues
from tf_largeout.types import Config, InitializerLike, TensorLike


class ClassLayer(Protocol):
    """What a sampler asks of the layer whose classes it draws, which is also a Keras layer."""

    @property
    def name(self) -> str:
        """Its name, for messages."""

    @property
    def num_classes(self) -> int:
        """Its number of classes."""

    @property
    def class_matrix(self) -> ClassScorer:
        """The rows of its classes."""

    @property
    def seed_state(self) -> keras.Variable:
        """int64 `[2]`: the seed, and how many were drawn. Its device is that of the layer."""

    def next_seed(self) -> tf.Tensor:
        """int64 `[2]`, new at each call and another one on each replica."""

    def add_weight(self, *args: Any, **kwargs: Any) -> keras.Variable:
        """Makes a weight, as `keras.layers.Layer.add_weight`."""


class Sampler:
    """Draws the classes that a sampled loss compares with the labels of a training step.

    A subclass writes `draw`, or `draw_after`; `build`, if it keeps state; and `prepare` or
    `rows_changed`, if that state follows the class embeddings. One that holds other samplers
    passes `release` and `take_classes` on to them. State is made with `add_weight`, so that it
    is saved, restored and distributed with the layer; random bits come from
    `layer.next_seed()`. Every sampler promises: the expected counts are those of its draws (1,
    uncorrected, for searches without a tail), no gradient flows through it, and equal seeds
    give equal draws. A sampler belongs to one layer; where building that layer fails, it is
    free for another.

    Args:
        num_sampled: Number of classes drawn, a positive int. A sample that the batch shares is
            one for all of its rows: every position of every sequence in it is a row.
        seed: Optional int that the layer's draws start from; random if None.

    Attributes:
        searches: Whether the classes depend on features or labels: no tail beside a search.
        uses_previous: Whether they depend on the label before in the sequence: `draw_after` is
            called then.
        needs_one_table: Whether it takes all rows in one variable, `class_matrix.variables()`.
    """

    searches = uses_previous = needs_one_table = False

    def __init__(self, num_sampled: int = 1024, seed: int | None = None) -> None:
        self.num_sampled = whole_number("num_sampled", num_sampled, most=2**31 - 1)
        self.seed = seed_or_none("seed", seed)
        self.num_classes = 0  # until it is built

    @property
    def counts_are(self) -> str:
        """What the expected counts are, by which losses choose whether they can take them.

        * "draws", the default: the mean of how often a class is drawn, which may be several
          times in one sample.
        * "probabilities": that a class is drawn; each is at most once in a sample. Where there
          are a head and a tail, those of the tail.
        * "none": 1 for each, because nobody knows them.
        """
        return DRAWS

    @property
    def name_in_messages(self) -> str:
        """What messages call the sampler: its class, or the public one that it is a part of."""
        return type(self).__name__

    def build(self, layer: ClassLayer) -> None:
        """Makes the state of the sampler as weights of `layer`, by `add_weight`.

        Args:
            layer: The layer that the sampler draws for; its `class_matrix` is there.

        Raises:
            ValueError: If a layer has built the sampler already, or it cannot draw from so
                many classes.
        """
        self.require_free()
        self.num_classes = layer.num_classes

    def release(self) -> None:
        """Forgets the layer, so that another may build the sampler: its build has failed.

        A subclass that builds other samplers releases them too.
        """
        self.num_classes = 0

    def require_free(self) -> None:
        """Raises a ValueError where a layer has built the sampler already."""
        if self.num_classes:
            raise ValueError(
                f"This {self.name_in_messages} was already built by a layer with "
                f"{self.num_classes} classes. Give each layer a sampler of its own."
            )

    def require_built(self) -> None:
        """Raises a ValueError where no layer has built the sampler yet."""
        if not self.num_classes:
            raise ValueError(
                f"This {self.name_in_messages} has no state: its layer is not built yet. Call "
                "the model on data, or build it with its input shape, first."
            )

    def add_weight(
        self,
        layer: ClassLayer,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        initializer: InitializerLike,
        on_host: bool = False,
        shard: ClassShard | None = None,
    ) -> keras.Variable:
        """Makes `sampler_{name}`, a weight of `layer` that holds state of the sampler.

        It is not trained.

        Args:
            layer: The layer that builds the sampler.
            name: Name of the state, no other's of this sampler.
            shape: Its shape.
            dtype: Its type, such as "int64".
            initializer: What gives it its first values: a Keras initializer, or its name.
            on_host: Whether it is on the CPU, where counters belong that decide what a step
                does; else it is on the device of the layer's own weights.
            shard: The classes that it is for, whose machine and name it gets; None for all.

        Returns:
            The `keras.Variable`.

        Raises:
            ValueError: If the `tf.distribute` strategy makes no variables of that type.
        """
        name = f"sampler_{name if shard is None else shard.name_of(name)}"
        anchor = layer.seed_state
        if shard is not None and shard.device_anchor is not None:
            anchor = shard.device_anchor
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
        setattr(layer, name, weight)  # tf.train.Checkpoint saves what attributes hold
        return weight

    @contextlib.contextmanager
    def _error_of_strategy(self, dtype: str) -> Iterator[None]:
        """Says which samplers a strategy takes whose workers send each other no `dtype`."""
        try:
            yield
        except tf.errors.InvalidArgumentError as error:
            if not tf.distribute.has_strategy():
                raise
            raise ValueError(
                f"{self.name_in_messages} keeps weights of type {dtype}, which "
                f"{type(tf.distribute.get_strategy()).__name__} cannot make. Take a static "
                "sampler, such as UniformSampler, or KernelTreeSampler or TopKSampler; or "
                "MirroredStrategy, whose replicas are in one process. TensorFlow says: "
                f"{error.message.splitlines()[0]}"
            ) from error

    def sample(
        self,
        features: TensorLike | None,
        labels: TensorLike,
        layer: ClassLayer,
        previous: TensorLike | None = None,
    ) -> SampledValues | HeadAndTail:
        """Draws classes for one training step, after `prepare`.

        Args:
            features: `[batch, dim]`, the inputs of `layer`; of sequences `[batch, time, dim]`
                each position is a row, `[batch * time, dim]`. Static samplers ignore them.
            labels: int64 `[batch, num_labels]`, padded with -1.
            layer: The layer that built this sampler.
            previous: For samplers that use it: int64 `[batch]`, the label of the position
                before each row in its sequence, or -1; None stands for no sequences.

        Returns:
            `SampledValues`, or `HeadAndTail`: classes of each row's own and shared ones.
        """
        labels = tf.convert_to_tensor(labels, tf.int64)
        if features is not None:
            features = tf.cast(tf.stop_gradient(features), tf.float32)
        self.prepare(layer)
        if self.uses_previous:
            if previous is None:
                previous = tf.fill(tf.shape(labels)[:1], -1)
            values = self.draw_after(tf.cast(previous, tf.int64), labels, layer)
        else:
            values = self.draw(features, labels, layer)
        return tf.nest.map_structure(tf.stop_gradient, values)

    def prepare(self, layer: ClassLayer) -> None:
        """Brings the state up to date, before each draw: counts steps, rebuilds tables.

        Args:
            layer: The layer that built this sampler.
        """
        return  # AutoGraph cannot convert a function without a statement.

    def draw(
        self, features: tf.Tensor | None, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues | HeadAndTail:
        """What `sample` returns.

        Args:
            features: float32 `[batch, dim]`, without a gradient; None for static samplers.
            labels: int64 `[batch, num_labels]`, padded with -1.
            layer: The layer that built this sampler.

        Returns:
            `SampledValues` or `HeadAndTail`.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `draw`.")

    def draw_after(
        self, previous: tf.Tensor, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues | HeadAndTail:
        """What `sample` returns, of a sampler with `uses_previous`.

        Args:
            previous: int64 `[batch]`, the label of the position before; -1 where none is.
            labels: int64 `[batch, num_labels]`, padded with -1.
            layer: The layer that built this sampler.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `draw_after`.")

    def rows_changed(self, ids: tf.Tensor, old_rows: tf.Tensor, layer: ClassLayer) -> None:
        """Follows the class embeddings: called after each update by a row-sparse optimizer.

        Under a dense gradient with all classes, in O(num_classes). Keras's optimizers call
        nothing. Costs nothing where a class of samplers does not define it.

        Args:
            ids: int64 `[n]`, the classes that were updated; may repeat, -1 is none.
            old_rows: float32 `[n, dim]`, their embeddings before; those of now are
                `layer.class_matrix.rows(ids)`.
            layer: The layer that built this sampler.
        """

    def take_classes(self, before: Any, change: ClassChange) -> None:
        """Goes on where another sampler was, whose layer had other classes.

        For `resize_classes`. By default the state starts anew, as is right for what is built
        of the class embeddings in the next step. A subclass whose state says more of the
        classes, or counts steps, sets it here.

        Args:
            before: A built sampler of the same config.
            change: Which of its classes are kept, and what their ids are now.
        """

    def health(self, layer: ClassLayer) -> dict[str, Any]:
        """Returns numbers about the search structure of the sampler, for monitoring.

        Args:
            layer: The layer that built this sampler.

        Returns:
            A dict of numbers by name, empty for a sampler without such a structure.

        Raises:
            ValueError: If no layer has built it.
        """
        self.require_built()
        return {}

    def get_config(self) -> Config:
        return {"num_sampled": self.num_sampled, "seed": self.seed}

    @classmethod
    def from_config(cls, config: Config) -> "Sampler":
        return cls(**config)
