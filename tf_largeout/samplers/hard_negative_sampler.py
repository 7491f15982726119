"""The base class of samplers that search for the hard classes of each example."""

import functools
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.arguments import is_whole
from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.ops.candidate_ops import mask_accidental_hits
from tf_largeout.sampled_values import NONE, HeadAndTail, SampledValues
from tf_largeout.samplers.registry import make_tail, require_num_hard
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.samplers.search_start import SearchStart
from tf_largeout.types import Config


class HardNegativeSampler(Sampler):
    """Base of the samplers that find hard classes for each example.

    A subclass implements `search`, and `keep_up` and `rebuild_replica` if it has a search
    structure. Hard classes are wrong classes with high scores. With `num_hard`, an example gets
    `num_hard` classes from the search (its head). The other `num_sampled - num_hard` classes
    come from the tail, a static sample that all examples of the batch share; see `HeadAndTail`.
    The loss then estimates the denominator of the softmax without bias, even if the search
    misses hard classes or finds none. With `num_hard=None`, all `num_sampled` classes come from
    the search. Their expected counts are set to 1, so the loss does not correct for them, as in
    the papers.

    Args:
        num_sampled: Number of sampled classes per example: those of its search plus those of
            the tail.
        num_hard: Number of classes that the search finds, between 1 and `num_sampled - 1`; or
            None for all of them, without a tail.
        tail: With `num_hard`, the sampler of the other `num_sampled - num_hard` classes: a name
            such as "uniform", or a `StaticSampler`. This sampler makes a copy of the
            `StaticSampler` that draws this number of classes. Give a `UnigramSampler` its
            counts before you pass it, or call `sampler.tail.adapt` later.
        start_step: With `num_hard`, the first training step that searches, counted from 0.
            Before this step, the heads are empty, and a step takes little more time than with
            the tail only. None starts at step `num_classes / 200`, limited to the range from
            100 to 1,000. If most labels have rarely occurred by then, the search starts later,
            but no later than at three times this step. A line on stderr reports the start. A
            resumed run does not repeat this line. With the package tensorboard,
            `keras.callbacks.TensorBoard(update_freq=n)` also records the start, as the scalar
            `LAYER/search_start`.
        seed: Int that determines the random draws; None for a random seed.

    Attributes:
        tail: The `Sampler` of the tail, which belongs to this sampler, or None.
        num_searched: Number of classes that `search` finds per example.

    Raises:
        ValueError: If `num_hard` or `start_step` is out of range, if `start_step` is passed
            without `num_hard`, or if `tail` is a sampler that searches or is passed without
            `num_hard`.
    """

    searches = True

    def __init__(
        self,
        num_sampled: int = 1024,
        num_hard: int | None = None,
        tail: Sampler | Config | str | None = "uniform",
        start_step: int | None = 0,
        seed: int | None = None,
    ) -> None:
        super().__init__(num_sampled, seed=seed)
        self.num_hard = self._checked(num_hard)
        self.num_searched = self.num_hard or self.num_sampled
        require_num_hard(tail, self.num_hard)
        self.tail = make_tail(tail, self.num_sampled - self.num_hard) if self.num_hard else None
        self.parts = (self.tail,) if self.tail else ()
        self.start = SearchStart(start_step, has_tail=self.tail is not None)

    @property
    def counts_are(self) -> str:
        return self.tail.counts_are if self.tail else NONE

    def keep_up(self, layer: ClassLayer) -> None:
        """Updates the search structure to the class embeddings of `layer`.

        It is called once in each training step that searches, before `search`. With a tail,
        `keep_up` and `search` may run in a branch of `tf.cond`. In such a branch they may write
        only to variables of this replica (`replicas.local_variable`), and must not draw seeds.

        Args:
            layer: The layer that built this sampler.
        """
        return  # AutoGraph cannot convert a function without a statement.

    def search(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> tf.Tensor:
        """Finds hard classes for each example.

        Args:
            features: float32 `[batch, dim]`, the inputs of `layer`; no gradient flows.
            labels: int64 `[batch, num_labels]`, padded with -1.
            layer: The layer that built this sampler.

        Returns:
            int64 `[batch, num_searched]`, distinct classes per example, padded with -1. Labels
            of the example may be among them; they have no effect.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `search`.")

    def build(self, layer: ClassLayer) -> None:
        super().build(layer)
        if self.tail:
            self._build_tail(self.tail, layer)
        self.start.build(self, layer)

    def take_classes(self, before: Any, change: ClassChange) -> None:
        super().take_classes(before, change)
        self.start.resume(before.start)

    def prepare(self, layer: ClassLayer) -> None:
        self.start.advance()
        _if(self.start.has_begun(), lambda: self._keep_up(layer), lambda: False)

    def draw(
        self, features: tf.Tensor | None, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues | HeadAndTail:
        def search() -> tf.Tensor:
            return self.search(features, labels, layer)

        if self.tail:
            return self.head_and_tail(search, features, labels, layer)
        ids = self._found(search, features)
        return SampledValues(ids, tf.ones(tf.shape(labels)), tf.ones(tf.shape(ids)))

    def head_and_tail(
        self,
        find: Callable[[], tf.Tensor],
        features: tf.Tensor | None,
        labels: tf.Tensor,
        layer: ClassLayer,
    ) -> HeadAndTail:
        """Returns the result of `draw` for a sampler with a tail.

        Args:
            find: Function that returns int64 `[batch, num_hard]`, distinct classes per example,
                padded with -1. It is not called before the search starts. It may run in a
                branch of `tf.cond`, so it must not draw seeds.
            features: float32 `[batch, dim]`.
            labels: int64 `[batch, num_labels]`, padded with -1.
            layer: The layer that built this sampler.
        """
        tail = self.tail.sample(features, labels, layer)  # type: ignore[union-attr]
        self.start.see(labels)
        ids = self._found(find, features)
        in_head = tf.cast(is_in_row(labels, ids), tf.float32)
        head = SampledValues(ids, in_head, tf.ones(tf.shape(ids)))
        return HeadAndTail(head, tail)  # type: ignore[arg-type]  # no tail searches

    def health(self, layer: ClassLayer) -> dict[str, Any]:
        """Returns `started_at`, the first training step that searched, or -1.

        Args:
            layer: The layer that built this sampler.

        Raises:
            ValueError: If no layer has built it.
        """
        return {**super().health(layer), "started_at": self.start.started_at()}

    def rebuild(self, layer: ClassLayer) -> None:
        """Builds the search structure from the current class embeddings, and starts the search.

        It costs O(num_classes dim), and O(num_classes dim^2) for a kernel tree. The next
        interval between rebuilds of hash tables starts at this step. Training rebuilds
        automatically. Call it outside a training step, after setting the embeddings directly.

        Args:
            layer: The layer that built this sampler.

        Raises:
            ValueError: If no layer has built it.
        """
        self.require_built()
        layer.class_matrix.each_replica(functools.partial(self.rebuild_replica, layer))

    def rebuild_replica(self, layer: ClassLayer) -> None:
        """Implements `rebuild` on one replica. Here it only starts the search.

        Args:
            layer: The layer that built this sampler.
        """
        self.start.now()

    def get_config(self) -> Config:
        return {
            "num_sampled": self.num_sampled,
            "num_hard": self.num_hard,
            "tail": keras.saving.serialize_keras_object(self.tail),
            "start_step": self.start.step,
            "seed": self.seed,
        }

    def _keep_up(self, layer: ClassLayer) -> bool:
        self.keep_up(layer)
        return True

    def _found(self, find: Callable[[], tf.Tensor], features: tf.Tensor | None) -> tf.Tensor:
        def no_classes() -> tf.Tensor:
            shape = [tf.shape(features)[0], self.num_searched]
            return tf.fill(shape, tf.constant(-1, tf.int64))

        ids = _if(self.start.has_begun(), lambda: tf.stop_gradient(find()), no_classes)
        return tf.ensure_shape(ids, [None, self.num_searched])

    def _build_tail(self, tail: Sampler, layer: ClassLayer) -> None:
        try:
            tail.build(layer)
        except ValueError as error:
            raise ValueError(
                f"{type(self).__name__}(num_sampled={self.num_sampled}, "
                f"num_hard={self.num_hard}) leaves {tail.num_sampled} negatives to its "
                f"tail, which cannot draw that many. Lower `num_sampled`, or pass another "
                f"`tail`. {error}"
            ) from error

    def _checked(self, num_hard: int | None) -> int | None:
        if num_hard is None:
            return None
        if is_whole(num_hard) and 1 <= num_hard < self.num_sampled:
            return int(num_hard)
        raise ValueError(
            "`num_hard` must be an integer of at least 1 and below `num_sampled`, so that at "
            "least one class is left for the tail, or None for no tail. "
            f"Received: num_hard={num_hard!r}, num_sampled={self.num_sampled}."
        )


def _if(
    condition: bool | tf.Tensor, then: Callable[[], Any], otherwise: Callable[[], Any]
) -> Any:
    """Like `tf.cond`, but creates no op if `condition` is the bool True."""
    return then() if condition is True else tf.cond(condition, then, otherwise)


def is_in_row(labels: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Returns which labels are among the ids of their example, bool `[batch, num_labels]`.

    It calls the op for accidental hits with labels and ids exchanged: the labels are the
    candidates. So it takes O(batch (num_labels + num_ids)) time.
    """
    zeros = tf.zeros(tf.shape(labels))
    return (mask_accidental_hits(zeros, ids, labels) < 0) & (labels >= 0)


def distinct_in_row(ids: tf.Tensor) -> tf.Tensor:
    """Sorts int64 `ids` `[batch, n]` per example, and replaces repeats by -1."""
    ids = tf.sort(ids, axis=1)
    repeats = tf.pad(ids[:, 1:] == ids[:, :-1], [[0, 0], [1, 0]])
    return tf.where(repeats, tf.constant(-1, tf.int64), ids)
