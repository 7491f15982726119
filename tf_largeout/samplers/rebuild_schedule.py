"""When the search structure of a sampler is built anew."""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tf_largeout.arguments import real_number, whole_number
from tf_largeout.classes.class_shard import ClassShard
from tf_largeout.ops import devices
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.types import Config
from tf_largeout.variables.replicas import local_variable

_NEVER = 2.0**62  # steps


class RebuildSchedule:
    """Rebuilds every few steps at first, then at exponentially growing distance.

    The first training step builds. With distance d before a rebuild the next one comes after
    `growth * d` steps, as in Daghaghi et al. 2021, section 3.3: weights change less and less.
    Rebuild i is thus at step `every (growth^i - 1) / (growth - 1)`, and a run of n steps has
    about `log(1 + n (growth - 1) / every) / log(growth)` of them. The state is a weight of the
    layer: a resumed run rebuilds where the uninterrupted one does.

    Args:
        every: Steps between the first two builds, a positive int.
        growth: Factor from one distance to the next, at least 1.

    Raises:
        ValueError: If one of them is out of range.
    """

    def __init__(self, every: int = 50, growth: float = 1.5) -> None:
        self.every = whole_number("rebuild_every", every)
        self.growth = real_number("rebuild_growth", growth, least=1)
        self._state: keras.Variable = None
        self._beside: keras.Variable = None

    def build(
        self, sampler: Sampler, layer: ClassLayer, shard: ClassShard | None = None
    ) -> None:
        """Makes `[step, step of the next rebuild]`, a weight of `layer`.

        Args:
            sampler: The sampler whose state it is.
            layer: The layer that builds it.
            shard: The classes whose structure is rebuilt, where they are; None for all.
        """
        self._state = sampler.add_weight(
            layer, "rebuild_state", (2,), "int64", "zeros", on_host=True, shard=shard
        )
        self._beside = layer.seed_state
        if shard is not None and shard.device_anchor is not None:
            self._beside = shard.device_anchor

    def advance(
        self,
        rebuild: Callable[[tf.Tensor], None],
        is_stale: Callable[[], tf.Tensor] | None = None,
    ) -> None:
        """Counts a training step, and calls `rebuild(step)` before it where that is due.

        Args:
            rebuild: Function of the step's number, an int64 scalar, that rebuilds in place.
                It runs inside `tf.cond`, so it must write to the variables of this replica
                only (`replicas.local_variable`).
            is_stale: Optional function of no arguments that tells, as a scalar bool tensor,
                whether the structure no longer fits the weights, whatever the schedule says;
                asked every `every` steps. So weights that were set by hand are noticed.
        """
        state = local_variable(self._state)

        def on_device(function: Callable[..., Any], *arguments: tf.Tensor) -> Any:
            with devices.device_scope_of(self._beside):
                return function(*arguments)

        def rebuild_now() -> tf.Tensor:
            on_device(rebuild, step)
            return self._next_after(step)

        with devices.host_scope(self._beside):
            step, next_rebuild = tf.unstack(state.read_value())
            due = step >= next_rebuild
            if is_stale is not None:
                ask = tf.logical_and(step % self.every == 0, tf.logical_not(due))
                stale = tf.cond(ask, lambda: on_device(is_stale), lambda: tf.constant(False))
                due = tf.logical_or(due, stale)
            next_rebuild = tf.cond(due, rebuild_now, lambda: next_rebuild)
            state.assign([step + 1, next_rebuild])

    def now(self, rebuild: Callable[[tf.Tensor], None]) -> None:
        """Calls `rebuild(step)` outside the schedule; the next distance is this step's."""
        state = local_variable(self._state)
        step = state.read_value()[0]
        rebuild(step)
        state.assign([step, self._next_after(step)])

    def resume(self, before: "RebuildSchedule") -> None:
        """Goes on with the steps of another one; the next step builds."""
        step = local_variable(before._state).read_value()[0]
        self._state.assign([step, step])

    def get_config(self) -> Config:
        return {"rebuild_every": self.every, "rebuild_growth": self.growth}

    def _next_after(self, step: tf.Tensor) -> tf.Tensor:
        # every * growth^i, in terms of the step of rebuild i: no third number to keep.
        distance = self.every + (self.growth - 1) * tf.cast(step, tf.float64)
        return step + tf.cast(tf.math.ceil(tf.minimum(distance, _NEVER)), tf.int64)
