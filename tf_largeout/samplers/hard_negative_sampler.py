"""The base class of samplers that search for the hard classes of each example."""

import keras
import tensorflow as tf

from tf_largeout.arguments import is_whole
from tf_largeout.ops.candidate_ops import mask_accidental_hits
from tf_largeout.sampled_values import HeadAndTail
from tf_largeout.sampled_values import SampledValues
from tf_largeout.samplers.sampler import Sampler
from tf_largeout.samplers.search_start import SearchStart
from tf_largeout.samplers.tails import make_tail


class HardNegativeSampler(Sampler):
    """Base of the samplers that find each example's own hard classes.

    A subclass writes `search`, and `prepare` if it keeps a structure. With `num_hard` a row
    gets `num_hard` classes from the search (the head) and `num_sampled - num_hard` from the
    tail, a static sample that the batch shares; see `HeadAndTail`. The loss is then an
    unbiased estimate whatever the search finds, nothing included. With `num_hard=None` all
    `num_sampled` classes come from the search, with expected counts of 1: not corrected for,
    as in the papers.

    Args:
        num_sampled: Number of classes a row is compared with, own and shared together.
        num_hard: How many of them the search finds, between 1 and `num_sampled - 1`; or None
            for all of them, and no tail.
        tail: With `num_hard`, what draws the others, `num_sampled - num_hard` of them: a name
            such as "uniform", or a `StaticSampler`, of which a copy with that `num_sampled` is
            taken. A `UnigramSampler` needs its counts before, or by `sampler.tail.adapt`.
        start_step: With `num_hard`, number of the training step, from 0, that is the first to
            search; before, the heads are empty, and a step costs what the tail costs. None
            for `num_classes / 200`, at least 100 and at most 1,000. A line on stderr tells when
            the search begins, see `SearchStart`.
        seed: Optional int that the layer's draws start from; random if None.

    Attributes:
        tail: The `Sampler` of the tail, or None; no other sampler's or layer's.
        num_searched: Number of classes that `search` finds for a row.

    Raises:
        ValueError: If `num_hard` or `start_step` is out of range, there is a `start_step`
            without `num_hard`, or `tail` searches.
    """

    searches = True

    def __init__(
        self, num_sampled=1024, num_hard=None, tail="uniform", start_step=0, seed=None
    ):
        super().__init__(num_sampled, seed=seed)
        self.num_hard = self._checked(num_hard)
        self.num_searched = self.num_hard or self.num_sampled
        self.tail = make_tail(tail, num_sampled - num_hard) if self.num_hard else None
        if start_step and not self.tail:
            raise ValueError(
                "Without a tail there are no negatives before the search starts. Received: "
                f"start_step={start_step}, num_hard=None. Leave `start_step` out, or pass "
                "`num_hard`."
            )
        self.start = SearchStart(start_step if self.tail else 0)

    def prepare(self, layer):
        """What a training step of `layer` does before it searches, such as a rebuild."""
        return  # AutoGraph cannot convert a function without a statement.

    def search(self, features, labels, layer) -> tf.Tensor:
        """Finds hard classes of each row.

        Args:
            features: float32 `[batch, dim]`, the inputs of `layer`; no gradient flows.
            labels: int64 `[batch, num_labels]`, padded with -1.
            layer: The layer that built this sampler.

        Returns:
            int64 `[batch, num_searched]`, distinct classes in each row, padded with -1. Labels
            of the row may be among them; they have no effect.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `search`.")

    def build(self, layer):
        super().build(layer)
        if self.tail:
            self._build_tail(layer)
        self.start.build(self, layer)

    def release(self):
        super().release()
        if self.tail:
            self.tail.release()

    def sample(self, features, labels, layer):
        labels = tf.convert_to_tensor(labels, tf.int64)
        features = tf.cast(tf.stop_gradient(features), tf.float32)
        tail = self.tail.sample(features, labels, layer) if self.tail else None
        starts = self.start.advance(layer)
        ids = self._head(starts, features, labels, layer)
        ones = tf.ones(tf.shape(ids))
        if tail is None:
            return SampledValues(ids, tf.ones(tf.shape(labels)), ones)
        in_head = tf.cast(is_in_row(labels, ids), tf.float32)
        return HeadAndTail(SampledValues(ids, in_head, ones), tail)

    def get_config(self):
        return {
            "num_sampled": self.num_sampled,
            "num_hard": self.num_hard,
            "tail": keras.saving.serialize_keras_object(self.tail),
            "start_step": self.start.step,
            "seed": self.seed,
        }

    def _rebuild_now(self, layer, rebuild):
        """Calls `rebuild()` on each replica, outside of a step, and starts the search."""
        self.require_built()
        strategy = getattr(layer.embeddings.value, "distribute_strategy", None)

        def rebuild_and_start():
            self.start.now(layer)
            rebuild()

        @tf.function
        def on_all_replicas():
            (strategy or tf.distribute.get_strategy()).run(rebuild_and_start)

        on_all_replicas()

    def _head(self, starts, features, labels, layer):
        def search():
            self.prepare(layer)
            return tf.stop_gradient(self.search(features, labels, layer))

        def no_classes():
            shape = [tf.shape(features)[0], self.num_searched]
            return tf.fill(shape, tf.constant(-1, tf.int64))

        ids = search() if starts is True else tf.cond(starts, search, no_classes)
        return tf.ensure_shape(ids, [None, self.num_searched])

    def _build_tail(self, layer):
        try:
            self.tail.build(layer)
        except ValueError as error:
            raise ValueError(
                f"{type(self).__name__}(num_sampled={self.num_sampled}, "
                f"num_hard={self.num_hard}) leaves {self.tail.num_sampled} negatives to its "
                f"tail, which cannot draw them. Lower `num_sampled`, or pass another `tail`. "
                f"{error}"
            ) from error

    def _checked(self, num_hard):
        if num_hard is None:
            return None
        if is_whole(num_hard) and 1 <= num_hard < self.num_sampled:
            return int(num_hard)
        raise ValueError(
            "`num_hard` must be an integer of at least 1 and below `num_sampled`, so that at "
            "least one class is left for the tail, or None for no tail. "
            f"Received: num_hard={num_hard!r}, num_sampled={self.num_sampled}."
        )


def is_in_row(labels, ids):
    """Tells, `[batch, num_labels]`, which labels are among the ids of their row.

    As hits among candidates, in O(batch (num_labels + num_ids)): here the labels are the
    candidates, and the ids what is hit.
    """
    zeros = tf.zeros(tf.shape(labels))
    return (mask_accidental_hits(zeros, ids, labels) < 0) & (labels >= 0)
