"""The training step from which on a sampler searches for hard negatives."""

import sys

import keras
import tensorflow as tf

from tf_largeout.arguments import whole_number
from tf_largeout.ops import devices
from tf_largeout.replicas import is_first_replica, local_variable
from tf_largeout.samplers.sampler import ClassLayer, Sampler

_CLASSES_PER_STEP = 200
_EARLIEST, _LATEST = 100, 1_000


class SearchStart:
    """Tells from which training step on a sampler searches, and says so when it begins.

    Without a given step it is

        num_classes / 200, at least 100 and at most 1,000,

    so that a search begins on any data, under any loss and with any number of negatives. By
    then batches of 256 have had about one label per class of up to 200,000, and the rows
    of most are no longer where they were initialized. Problems with fewer classes are learned
    in fewer steps. What an earlier and a later start led to is in docs/lab/negatives.md.

    In that step one line goes to stderr, which names the layer, the sampler and the step;
    under a `tf.distribute` strategy from the first replica only. The state is a weight of the
    layer: a resumed run begins where the uninterrupted one does, and does not say it again.

    Args:
        step: Number of the step, from 0, below 2^63; or None for the rule. With 0 nothing is
            said.
        has_tail: Whether there are negatives without the search. If not, it begins in step 0.

    Attributes:
        step: What was given, or 0 without a tail.

    Raises:
        ValueError: If `step` is something else, or there is no tail and `step` is neither 0 nor
            None.
    """

    def __init__(self, step: int | None = 0, has_tail: bool = True) -> None:
        if step and not has_tail:
            raise ValueError(
                "Without a tail there are no negatives before the search starts. Received: "
                f"start_step={step}, num_hard=None. Leave `start_step` out, or pass "
                "`num_hard`."
            )
        step = step if has_tail else 0
        self.step = whole_number("start_step", step, least=0, or_none=True)
        if self.step is not None and self.step >= 2**63:
            raise ValueError(
                "`start_step` must be below 2^63, as training steps are counted in 64 bits. "
                f"Received: start_step={step}."
            )
        self._progress: keras.Variable = None
        self._first, self._who = 0, ""  # until it is built

    def build(self, sampler: Sampler, layer: ClassLayer) -> None:
        """Makes `[number of the next step, step of the start or -1]`, a weight of `layer`."""
        if self.step == 0:
            return
        self._first = default_step(layer.num_classes) if self.step is None else self.step
        self._progress = sampler.add_weight(
            layer,
            "search_start",
            (2,),
            "int64",
            lambda shape, dtype: tf.constant([0, -1], dtype),
            on_host=True,
        )
        self._who = f"layer '{layer.name}', {sampler.name_in_messages}"

    def advance(self) -> None:
        """Counts a training step; to be called once per step, before `has_begun`."""
        if self.step == 0:
            return
        progress = local_variable(self._progress)
        with devices.host_scope(self._progress):
            step, started_at = tf.unstack(progress.read_value())
            begins = (started_at < 0) & (step >= self._first)
            progress.assign([step + 1, tf.where(begins, step, started_at)])
            if is_first_replica():
                tf.cond(begins, lambda: self._say(step), lambda: False)

    def has_begun(self) -> bool | tf.Tensor:
        """Whether the step that was counted last searches: True, or a scalar bool tensor."""
        if self.step == 0:
            return True
        with devices.host_scope(self._progress):
            return local_variable(self._progress).read_value()[1] >= 0

    def now(self) -> None:
        """Starts with the next step, if that has not been."""
        if self.step != 0:
            progress = local_variable(self._progress)
            step, started_at = tf.unstack(progress.read_value())
            progress.assign([step, tf.where(started_at < 0, step, started_at)])

    def resume(self, before: "SearchStart") -> None:
        """Goes on where another one is: a search that has begun does not begin again."""
        if self.step != 0:
            self._progress.assign(before._progress)

    def started_at(self) -> int:
        """The number of the step, or -1."""
        return 0 if self.step == 0 else int(local_variable(self._progress)[1])

    def _say(self, step: tf.Tensor) -> bool:
        tf.print(
            # It starts with a line break, as the line of a progress bar has not ended.
            "\ntf_largeout: the search for hard negatives begins in training step ",
            step,
            f" ({self._who}; `start_step` sets another).",
            output_stream=sys.stderr,
            sep="",
        )
        return True


def default_step(num_classes: int) -> int:
    """The step of a search that was given none, see `SearchStart`."""
    return min(max(num_classes // _CLASSES_PER_STEP, _EARLIEST), _LATEST)
