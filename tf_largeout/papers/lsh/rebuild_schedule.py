"""When hash tables are rebuilt."""

from collections.abc import Callable

import keras
import tensorflow as tf

from tf_largeout.arguments import real_number, whole_number
from tf_largeout.ops import devices
from tf_largeout.search.add_weight import AddWeight
from tf_largeout.variables.replicas import local_variable

_NEVER = 2.0**62  # steps


class RebuildSchedule:
    """Rebuilds every few steps at first, then at exponentially growing intervals.

    The first training step builds. If a rebuild comes d steps after the previous one, the next
    one comes `growth * d` steps later (Daghaghi et al. 2021, section 3.3), because weights
    change less and less. So rebuild i is at step `every (growth^i - 1) / (growth - 1)`, and a
    run of n steps has about `log(1 + n (growth - 1) / every) / log(growth)` rebuilds. The state
    is a weight, so a resumed run rebuilds in the same steps as an uninterrupted one.

    Args:
        every: Steps between the first two builds, a positive int.
        growth: Factor from one interval to the next, at least 1.

    Raises:
        ValueError: If one of them is out of range.
    """

    def __init__(self, every: int = 50, growth: float = 1.5) -> None:
        self.every = whole_number("rebuild_every", every)
        self.growth = real_number("rebuild_growth", growth, least=1)
        self._state: keras.Variable = None

    def build(self, add_weight: AddWeight) -> None:
        """Creates the state: `[step, step of the next rebuild]`.

        Args:
            add_weight: Function that creates a weight.
        """
        self._state = add_weight("rebuild_state", (2,), "int64", "zeros", on_host=True)

    def advance(
        self,
        rebuild: Callable[[tf.Tensor], None],
        is_stale: Callable[[], tf.Tensor] | None = None,
    ) -> None:
        """Counts a training step, and first calls `rebuild(step)` if that is due.

        Args:
            rebuild: Function of the step number, an int64 scalar, that rebuilds in place. It
                runs inside `tf.cond`, so it may write only to the variables of this replica
                (`replicas.local_variable`), and in the scope of the CPU.
            is_stale: Optional function without arguments that returns, as a scalar bool tensor,
                whether the structure no longer fits the weights. It is called every `every`
                steps, and True causes a rebuild outside the schedule. So the structure is also
                rebuilt if weights were set directly.
        """
        state = local_variable(self._state)

        def rebuild_now() -> tf.Tensor:
            rebuild(step)
            return self._next_after(step)

        with devices.host_scope(self._state):
            step, next_rebuild = tf.unstack(state.read_value())
            due = step >= next_rebuild
            if is_stale is not None:
                ask = tf.logical_and(step % self.every == 0, tf.logical_not(due))
                due = tf.logical_or(due, tf.cond(ask, is_stale, lambda: tf.constant(False)))
            next_rebuild = tf.cond(due, rebuild_now, lambda: next_rebuild)
            state.assign([step + 1, next_rebuild])

    def now(self, rebuild: Callable[[tf.Tensor], None]) -> None:
        """Calls `rebuild(step)` now; the next interval starts at this step."""
        state = local_variable(self._state)
        step = state.read_value()[0]
        rebuild(step)
        state.assign([step, self._next_after(step)])

    def resume(self, before: "RebuildSchedule") -> None:
        """Takes the step number of another schedule; the next step builds."""
        step = local_variable(before._state).read_value()[0]
        self._state.assign([step, step])

    def _next_after(self, step: tf.Tensor) -> tf.Tensor:
        # every * growth^i, from the step of rebuild i, so that i is not part of the state.
        distance = self.every + (self.growth - 1) * tf.cast(step, tf.float64)
        return step + tf.cast(tf.math.ceil(tf.minimum(distance, _NEVER)), tf.int64)
