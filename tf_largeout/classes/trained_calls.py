"""Which calls of a layer train it, where its weights can follow only one in a step."""

import weakref
from collections.abc import Hashable

import tensorflow as tf

from tf_largeout.keras_internals import call_stack


class TrainedCalls:
    """The calls of one layer whose weights take their step in the backward pass.

    The losses of all calls are computed from the weights before the step. So once one call has
    made its step, another one of the same training step cannot make its own. `TrainedCall`
    raises before the first of them changes a weight:

    While TensorFlow traces a function, nothing runs, so it is enough that the second step to be
    traced raises. In eager execution the first step looks for losses on other calls whose
    gradient a tape can still be asked for.

    Args:
        owner: Name of the layer, for the error.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.num_steps = 0
        # Of each graph, the number of the last step that was traced there.
        self.last_step: weakref.WeakKeyDictionary[Hashable, int] = weakref.WeakKeyDictionary()
        self.eager_losses: weakref.WeakSet[EagerLoss] = weakref.WeakSet()

    def new_call(self) -> "TrainedCall":
        """A call of the layer in training."""
        return TrainedCall(self)


class TrainedCall:
    """One call of the layer, which may make one step.

    Args:
        calls: All calls of the layer.
    """

    def __init__(self, calls: TrainedCalls) -> None:
        self._calls = calls
        self._steps_before = calls.num_steps
        self._has_stepped = False

    def new_loss(self) -> "EagerLoss | None":
        """What the gradient function of a loss must hold, so that it is alive while a tape is.

        None in a graph, which holds such functions for ever.
        """
        if not tf.executing_eagerly():
            return None
        loss = EagerLoss(self)
        self._calls.eager_losses.add(loss)
        return loss

    def make_step(self, losses: "list[EagerLoss | None]") -> None:
        """Allows the call to make its step.

        Args:
            losses: What `new_loss` gave for the losses of the step.

        Raises:
            ValueError: If another call is to train the layer in the same step.
        """
        calls = self._calls
        if tf.executing_eagerly():
            is_second = any(map(self._other_in_step, losses))
        else:
            graph = tf.constant(0).graph
            is_second = calls.last_step.get(graph, 0) > self._steps_before
            calls.last_step[graph] = calls.num_steps + 1
        if is_second:
            raise ValueError(
                f"Layer '{calls.owner}' was called twice in one training step, and a loss on "
                "each call is to train it. Its weights take one step per batch, in the "
                "backward pass of one call. Concatenate the inputs and call the layer once."
            )
        calls.num_steps += 1
        self._has_stepped = True

    def _other_in_step(self, loss: "EagerLoss | None") -> bool:
        """Whether a loss on another call belongs to the step that is being made.

        Its tape may also have been left over by a step that failed or was interrupted, whose
        frames a traceback holds. Both losses of one step are computed inside of the function
        that asks for the gradients, so they have that frame, and all outside of it, in common.
        """
        if loss is None:
            return False
        depth = _num_shared(loss.frames, call_stack())
        return any(
            not other.call._has_stepped and _num_shared(loss.frames, other.frames) >= depth
            for other in self._calls.eager_losses
            if other.call is not self
        )


class EagerLoss:
    """A loss on a call, computed in eager execution, and from where.

    Args:
        call: The call.
    """

    def __init__(self, call: TrainedCall) -> None:
        self.call, self.frames = call, call_stack()


def _num_shared(one: list[int], other: list[int]) -> int:
    """How many frames, from the outermost on, two call stacks have in common."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
