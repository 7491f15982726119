"""The training step in which a sampler starts to search for hard negatives."""

import importlib.util
import sys

import keras
import tensorflow as tf

from tf_largeout.arguments import whole_number
from tf_largeout.ops import devices
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.variables.initializers import step_and_none
from tf_largeout.variables.replicas import gathered, is_first_replica, local_variable

_CLASSES_PER_STEP = 200
_EARLIEST, _LATEST = 100, 1_000
_PATIENCE = 3
_WATCHED, _MET_OFTEN = 64, 15


class SearchStart:
    """Decides in which training step a sampler starts to search, and reports the start.

    Without `step`, the search starts in step

        num_classes / 200, at least 100 and at most 1,000.

    It starts later, but no later than at three times this step, if fewer than half of the
    labels of the first batch have occurred 15 more times by then. Before the search starts, the
    model learns as much from random negatives, in less time per step. The rule does not depend
    on the loss or on the number of negatives. It starts the search early if most labels belong
    to few classes, and later if all classes are about equally frequent. lab/negatives/README.md
    compares it with other starts.

    In the first step with a search, a line on stderr names the layer, the sampler and the step.
    If there is a default summary writer, and the package tensorboard is installed, the writer
    gets the step as the scalar `LAYER/search_start`. `keras.callbacks.TensorBoard` sets such a
    writer if `update_freq` is a number, not if it is "epoch". Under a `tf.distribute` strategy,
    only the first replica reports. The state is a weight of the layer: in a resumed run the
    search starts in the same step as in an uninterrupted run, and the start is not reported
    again.

    Args:
        step: Number of the step, from 0 and below 2^63, or None for the rule above. With 0, the
            start is not reported.
        has_tail: Whether there are negatives without the search. If not, the search starts in
            step 0.

    Attributes:
        step: As given, or 0 without a tail.

    Raises:
        ValueError: If `step` is something else, or if `step` is neither 0 nor None without a
            tail.
    """

    def __init__(self, step: int | None = 0, has_tail: bool = True) -> None:
        if step and not has_tail:
            raise ValueError(
                "Without a tail there are no negatives before the search starts. Received: "
                f"start_step={step}, num_hard=None. Leave out `start_step`, or pass "
                "`num_hard`."
            )
        step = step if has_tail else 0
        self.step = whole_number("start_step", step, least=0, or_none=True)
        self._progress: keras.Variable = None
        self._watched: keras.Variable = None
        self._first, self._last, self._who, self._tag = 0, 0, "", ""  # until it is built

    def build(self, sampler: Sampler, layer: ClassLayer) -> None:
        """Adds the state to the weights of `layer`.

        The first weight is `[number of the next step, step of the start or -1]`. If no step is
        given, there is a second one, `[2, 64]`: labels of the first batch, and how often each
        of them has occurred again.
        """
        if self.step == 0:
            return
        self._first = self._last = self.step or 0
        if self.step is None:
            self._first = default_step(layer.num_classes)
            self._last = _PATIENCE * self._first
            self._watched = sampler.add_weight(
                layer,
                "search_start_labels",
                (2, _WATCHED),
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
                begins &= self._typical_labels_are_known() | (step >= self._last)
            progress.assign([step + 1, tf.where(begins, step, started_at)])
            if is_first_replica():
                tf.cond(begins, lambda: self._say(step), lambda: False)

    def see(self, labels: tf.Tensor) -> None:
        """Counts the watched labels until the search starts. To be called once per step.

        It counts the labels of all replicas, so that they start in the same step.

        Args:
            labels: int64 `[batch, num_labels]`, padded with -1.
        """
        if self._watched is None:
            return
        labels = gathered(tf.reshape(labels, [-1]))
        with devices.host_scope(self._progress):
            tf.cond(self.has_begun(), lambda: False, lambda: self._see(labels))

    def _see(self, labels: tf.Tensor) -> bool:
        watched = local_variable(self._watched)
        ids, times = tf.unstack(watched.read_value())
        present = tf.boolean_mask(labels, labels >= 0)
        evenly = tf.range(_WATCHED) * tf.size(present) // _WATCHED
        new_ids = tf.gather(tf.pad(present, [[0, 1]], constant_values=-1), evenly)
        times += tf.math.count_nonzero(labels == ids[:, tf.newaxis], axis=1)
        is_first = ids[0] < 0  # until a batch has a label
        new_times = tf.where(is_first, tf.zeros_like(times), times)
        watched.assign([tf.where(is_first, new_ids, ids), new_times])
        return False

    def _typical_labels_are_known(self) -> tf.Tensor:
        often = local_variable(self._watched).read_value()[1] >= _MET_OFTEN
        return 2 * tf.math.count_nonzero(often) >= _WATCHED

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

    def _say(self, step: tf.Tensor) -> bool:
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


def default_step(num_classes: int) -> int:
    """Returns the earliest step by the rule of `SearchStart`."""
    return min(max(num_classes // _CLASSES_PER_STEP, _EARLIEST), _LATEST)
