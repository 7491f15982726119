"""The base class of samplers that search for hard negatives, and the parts of such samplers."""

import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import keras
import tensorflow as tf

from tf_largeout.classes.class_changes import ClassChange
from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.keras_internals import running_step
from tf_largeout.ops import devices
from tf_largeout.ops.candidate_ops import mask_accidental_hits
from tf_largeout.sampled_values import NONE, HeadAndTail, SampledValues
from tf_largeout.sampler_arguments import (
    MET_OFTEN,
    NUM_WATCHED,
    checked_num_hard,
    checked_start_step,
    first_and_last_step,
)
from tf_largeout.samplers.sampler import ClassLayer, Sampler, make_tail
from tf_largeout.types import Config
from tf_largeout.variables.initializers import step_and_none
from tf_largeout.variables.replicas import gathered, local_variable, replica_id

_SEED_BITS = 48  # above those of seeds and of replicas


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
    counts_without_tail = NONE

    def __init__(
        self,
        num_sampled: int = 1024,
        num_hard: int | None = None,
        tail: Sampler | Config | str | None = "uniform",
        start_step: int | None = 0,
        seed: int | None = None,
    ) -> None:
        super().__init__(num_sampled, seed=seed)
        self.num_hard = checked_num_hard(num_hard, self.num_sampled, tail)
        self.num_searched = self.num_hard or self.num_sampled
        self.tail = make_tail(tail, self.num_sampled - self.num_hard) if self.num_hard else None
        self.parts = (self.tail,) if self.tail else ()
        self.start = SearchStart(start_step, has_tail=self.tail is not None)

    @property
    def counts_are(self) -> str:
        return self.tail.counts_are if self.tail else self.counts_without_tail

    def keep_up(self, layer: ClassLayer) -> None:
        """Updates the search structure to the class embeddings of `layer`.

        It is called once in each training step that searches, before `search`. With a tail,
        `keep_up` and `search` may run in a branch of `tf.cond`. In such a branch they may write
        only to variables of this replica (`replicas.local_variable`), and must not draw seeds.
        """
        return  # AutoGraph cannot convert a function without a statement.

    def search(self, features: tf.Tensor, labels: tf.Tensor, layer: ClassLayer) -> tf.Tensor:
        """Finds hard classes for each example: distinct ones, padded with -1.

        The result is int64 `[batch, num_searched]`. Labels of the example may be among them;
        they have no effect. `features` are float32 `[batch, dim]`, without a gradient, and
        `labels` are int64 `[batch, num_labels]`, padded with -1.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `search`.")

    def build(self, layer: ClassLayer) -> None:
        super().build(layer)
        try:
            if self.tail:
                self.tail.build(layer)
        except ValueError as error:
            num_of_tail = self.num_sampled - (self.num_hard or 0)
            raise ValueError(
                f"{type(self).__name__}(num_sampled={self.num_sampled}, "
                f"num_hard={self.num_hard}) leaves {num_of_tail} negatives to its "
                f"tail, which cannot draw that many. Lower `num_sampled`, or pass another "
                f"`tail`. {error}"
            ) from error
        self.start.build(self, layer)

    def take_classes(self, before: Any, change: ClassChange) -> None:
        super().take_classes(before, change)
        self.start.resume(before.start)

    def prepare(self, layer: ClassLayer) -> None:
        def keep_up() -> bool:
            self.keep_up(layer)
            return True

        self.start.advance()
        _if(self.start.has_begun(), keep_up, _nothing)

    def draw(
        self, features: tf.Tensor | None, labels: tf.Tensor, layer: ClassLayer
    ) -> SampledValues | HeadAndTail:
        search = functools.partial(self.search, features, labels, layer)
        if self.tail:
            return self.head_and_tail(search, features, labels, layer)
        ids = tf.ensure_shape(search(), [None, self.num_searched])
        return SampledValues(ids, tf.ones(tf.shape(labels)), tf.ones(tf.shape(ids)))

    def head_and_tail(
        self,
        find: Callable[[], tf.Tensor],
        features: tf.Tensor | None,
        labels: tf.Tensor,
        layer: ClassLayer,
    ) -> HeadAndTail:
        """Returns the result of `draw` for a sampler with a tail; `find` works as `search`.

        It is not called before the search starts. It may run in a branch of `tf.cond`, so it
        must not draw seeds.
        """

        def no_classes() -> tf.Tensor:
            shape = [tf.shape(features)[0], self.num_searched]
            return tf.fill(shape, tf.constant(-1, tf.int64))

        tail = self.tail.sample(features, labels, layer)  # type: ignore[union-attr]
        self.start.see(labels)
        ids = _if(self.start.has_begun(), find, no_classes)
        ids = tf.ensure_shape(ids, [None, self.num_searched])
        in_head = tf.cast(is_in_row(labels, ids), tf.float32)
        head = SampledValues(ids, in_head, tf.ones(tf.shape(ids)))
        return HeadAndTail(head, tail)  # type: ignore[arg-type]  # no tail searches

    def health(self, layer: ClassLayer) -> dict[str, Any]:
        """Returns `started_at`, the first training step that searched, or -1."""
        return {**super().health(layer), "started_at": self.start.started_at()}

    def rebuild(self, layer: ClassLayer) -> None:
        """Builds the search structure from the current class embeddings, and starts the search.

        It costs O(num_classes dim), and O(num_classes dim^2) for a kernel tree. Training
        rebuilds automatically. Call it outside a training step, after setting the embeddings
        directly. Raises a ValueError if no layer has built it.
        """
        self.require_built()
        layer.class_matrix.each_replica(functools.partial(self.rebuild_replica, layer))

    def rebuild_replica(self, layer: ClassLayer) -> None:
        """Implements `rebuild` on one replica. Here it only starts the search."""
        self.start.now()

    def get_config(self) -> Config:
        return {
            "num_sampled": self.num_sampled,
            "num_hard": self.num_hard,
            "tail": keras.saving.serialize_keras_object(self.tail),
            "start_step": self.start.step,
            "seed": self.seed,
        }


def _if(
    condition: bool | tf.Tensor, then: Callable[[], Any], otherwise: Callable[[], Any]
) -> Any:
    """Like `tf.cond`, but creates no op if `condition` is the bool True."""
    return then() if condition is True else tf.cond(condition, then, otherwise)


def _nothing() -> bool:
    """What a `tf.cond` does otherwise."""
    return False


def is_in_row(labels: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Returns which labels are among the ids of their example, bool `[batch, num_labels]`."""
    zeros = tf.zeros(tf.shape(labels))  # labels are the candidates of the op, for linear time
    return (mask_accidental_hits(zeros, ids, labels) < 0) & (labels >= 0)


def distinct_in_row(ids: tf.Tensor) -> tf.Tensor:
    """Sorts int64 `ids` `[batch, n]` per example, and replaces repeats by -1."""
    ids = tf.sort(ids, axis=1)
    repeats = tf.pad(ids[:, 1:] == ids[:, :-1], [[0, 0], [1, 0]])
    return tf.where(repeats, tf.constant(-1, tf.int64), ids)


class SearchStart:
    """Decides in which training step a sampler starts to search, and reports the start.

    `step` is the `start_step` of a `HardNegativeSampler`. With None, most labels have rarely
    occurred if fewer than half of the labels of the first batch have occurred 15 more times.
    Until then, the model learns as much from random negatives, in less time per step;
    lab/negatives/README.md compares other starts. Only the first replica reports. A resumed run
    starts in the same step as an uninterrupted one. Without a tail, step 0 starts the search.
    """

    def __init__(self, step: int | None = 0, has_tail: bool = True) -> None:
        self.step = checked_start_step(step, has_tail)
        self._progress: keras.Variable = None
        self._watched: keras.Variable = None
        self._first, self._last, self._who, self._tag = 0, 0, "", ""  # until it is built

    def build(self, sampler: Sampler, layer: ClassLayer) -> None:
        """Adds to `layer` the weight `[number of the next step, step of the start or -1]`.

        If no step is given, it also adds a weight `[2, 64]`: labels of the first batch, and how
        often each of them has occurred again.
        """
        if self.step == 0:
            return
        self._first = self._last = self.step or 0
        if self.step is None:
            self._first, self._last = first_and_last_step(layer.num_classes)
            self._watched = sampler.add_weight(
                layer,
                "search_start_labels",
                (2, NUM_WATCHED),
                "int64",
                lambda shape, dtype: tf.constant([[-1], [0]], dtype) + tf.zeros(shape, dtype),
                on_host=True,
            )
        self._progress = sampler.add_weight(
            layer, "search_start", (2,), "int64", step_and_none, on_host=True
        )
        self._who = f"layer '{layer.name}', {type(sampler).__name__}"
        self._tag = f"{layer.name}/search_start"

    def advance(self) -> None:
        """Counts a training step. To be called once per step, before `has_begun`."""
        if self.step == 0:
            return
        progress = local_variable(self._progress)
        with devices.host_scope(self._progress):
            step, started_at = tf.unstack(progress.read_value())
            begins = (started_at < 0) & (step >= self._first)
            if self._first < self._last:
                often = local_variable(self._watched).read_value()[1] >= MET_OFTEN
                typical_are_known = 2 * tf.math.count_nonzero(often) >= NUM_WATCHED
                begins &= typical_are_known | (step >= self._last)
            progress.assign([step + 1, tf.where(begins, step, started_at)])
            # Replica 0 reports for all. XLA cannot compile output.
            if replica_id() == 0 and not running_step().is_compiled:
                tf.cond(begins, functools.partial(self._report, step), _nothing)

    def see(self, labels: tf.Tensor) -> None:
        """Counts the watched labels of all replicas until the search starts, once per step."""
        if self._watched is None:
            return
        labels = gathered(tf.reshape(labels, [-1]))
        with devices.host_scope(self._progress):
            tf.cond(self.has_begun(), _nothing, functools.partial(self._see, labels))

    def _see(self, labels: tf.Tensor) -> bool:
        watched = local_variable(self._watched)
        ids, times = tf.unstack(watched.read_value())
        is_label = labels >= 0
        present_first = tf.argsort(tf.cast(~is_label, tf.int32), stable=True)
        present = tf.pad(tf.gather(labels, present_first), [[0, 1]], constant_values=-1)
        number = tf.math.count_nonzero(is_label, dtype=tf.int32)
        new_ids = tf.gather(present, tf.range(NUM_WATCHED) * number // NUM_WATCHED)
        times += tf.math.count_nonzero(labels == ids[:, tf.newaxis], axis=1)
        is_first = ids[0] < 0  # until a batch has a label
        new_times = tf.where(is_first, tf.zeros_like(times), times)
        watched.assign([tf.where(is_first, new_ids, ids), new_times])
        return False

    def has_begun(self) -> bool | tf.Tensor:
        """Returns whether the current step searches: True, or a scalar bool tensor."""
        if self.step == 0:
            return True
        with devices.host_scope(self._progress):
            return local_variable(self._progress).read_value()[1] >= 0

    def now(self) -> None:
        """Starts with the next step, unless it has started."""
        if self.step != 0:
            progress = local_variable(self._progress)
            step, started_at = tf.unstack(progress.read_value())
            progress.assign([step, tf.where(started_at < 0, step, started_at)])

    def resume(self, before: "SearchStart") -> None:
        """Copies the state of another `SearchStart`, so that a started search stays started."""
        if self.step != 0:
            self._progress.assign(before._progress)
        if self._watched is not None and before._watched is not None:
            self._watched.assign(before._watched)

    def started_at(self) -> int:
        """Returns the number of the step that started, or -1."""
        return 0 if self.step == 0 else int(local_variable(self._progress)[1])

    def _report(self, step: tf.Tensor) -> bool:
        tf.print(
            # The line break ends the line of a progress bar.
            "\ntf_largeout: the search for hard negatives begins in training step ",
            step,
            f" ({self._who}; `start_step` sets another).",
            output_stream=sys.stderr,
            sep="",
        )
        if importlib.util.find_spec("tensorboard"):  # without it `scalar` is an error
            with tf.summary.record_if(True):  # also for a writer of every n-th step
                tf.summary.scalar(self._tag, step, step=step)
        return True


_Part = TypeVar("_Part")
_Found = TypeVar("_Found")


class SearchShards(Generic[_Part]):
    """A search structure per table of the class rows, which together are used as one.

    Each of the `parts` belongs to one of the `tables`, in the order of the classes. It works on
    the device that has the rows: only queries, ids, scores and seeds cross the network.
    """

    def __init__(self, classes: ClassScorer, make: Callable[[], _Part]) -> None:
        self.tables = classes.shards()
        self.parts = [make() for _ in self.tables]

    def build(self, sampler: Sampler, layer: ClassLayer, *arguments: Any) -> None:
        """Creates the state of all parts: `part.build(num_rows, *arguments, add_weight)`."""
        parts: list[Any] = self.parts
        for table, part in zip(self.tables, parts, strict=True):
            add_weight = functools.partial(sampler.add_weight, layer, shard=table)
            part.build(table.num_rows, *arguments, add_weight)

    def each(self, function: Callable[..., _Found], *own: Sequence[Any]) -> list[_Found]:
        """Returns `function(table, part, *own_of_table)` of each table, run on its device."""
        found = []
        for table, *arguments in zip(self.tables, self.parts, *own, strict=True):
            with table.place():
                found.append(function(table, *arguments))
        return found


def best_of_shards(
    found: Sequence[tuple[tf.Tensor, tf.Tensor]], k: int, is_sorted: bool = True
) -> tuple[tf.Tensor, tf.Tensor]:
    """Merges the `k` best rows of `(scores, ids)` per part, float32 and int64 `[B, m]`.

    If there is one part, the result is its m rows. With `is_sorted`, the best come first.
    """
    if len(found) == 1:
        return found[0]
    scores, ids = (tf.concat(parts, axis=1) for parts in zip(*found, strict=True))
    best_scores, places = tf.math.top_k(scores, k, sorted=is_sorted)
    return best_scores, tf.gather(ids, places, batch_dims=1)


def draw_shards(shares: tf.Tensor, num_draws: int, seed: tf.Tensor) -> tf.Tensor:
    """Draws int32 `[batch, num_draws]` by `shares`, `[batch, num_shards]`, independently."""
    shape = [tf.shape(shares)[0], num_draws]
    # In 64 bits, because float32 is too coarse for small shares.
    uniform = tf.random.stateless_uniform(shape, seed, dtype=tf.float64, alg="philox")
    cumulative = tf.cumsum(tf.cast(shares, tf.float64), axis=1)
    owner = tf.searchsorted(cumulative, uniform * cumulative[:, -1:], side="right")
    return tf.minimum(owner, tf.shape(shares)[1] - 1)


def seed_of(seed: tf.Tensor, number: int) -> tf.Tensor:
    """Returns the seed of draw `number` of several, int64 `[2]`; draw 0 has `seed` itself."""
    return seed + [number << _SEED_BITS, 0] if number else seed


def seed_of_run(layer: ClassLayer) -> tf.Tensor:
    """Returns the seed that the draws of the layer start from, int64 `[2]`."""
    first = local_variable(layer.seed_state).read_value()[0]
    with devices.host_scope(layer.seed_state):
        return tf.stack([first, 0])
