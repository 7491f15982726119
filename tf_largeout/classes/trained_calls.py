"""`TrainedCalls`: raises an error if a layer is called twice in a training step."""

import os
import weakref
from collections.abc import Hashable

import tensorflow as tf

from tf_largeout.keras_internals import call_stack


class TrainedCalls:
    """The calls of a layer whose weights are updated in the backward pass.

    The losses of all calls are computed from the weights before the update. After the update
    for one call, the update for another call of the same training step would be wrong. So a
    `TrainedCall` raises an error before a weight changes. While TensorFlow traces a function,
    nothing is executed, so the second update that is traced raises the error. In eager
    execution, the first update checks whether there are losses on other calls whose tape is
    still alive.

    Args:
        owner: Name of the layer, for the error.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.num_steps = 0
        # The number of the last update that was traced, per graph.
        self.last_step: weakref.WeakKeyDictionary[Hashable, int] = weakref.WeakKeyDictionary()
        self.eager_losses: weakref.WeakSet[EagerLoss] = weakref.WeakSet()


class TrainedCall:
    """One call of the layer, which may update the weights once.

    Args:
        calls: All calls of the layer.
    """

    def __init__(self, calls: TrainedCalls) -> None:
        self._calls = calls
        self._steps_before = calls.num_steps
        self._has_stepped = False

    def new_loss(self) -> "EagerLoss | None":
        """Returns an object to which the gradient function of a loss must keep a reference.

        The object is alive as long as the tape. In a graph, the result is None, because a graph
        never deletes such functions.
        """
        if not tf.executing_eagerly():
            return None
        loss = EagerLoss(self)
        self._calls.eager_losses.add(loss)
        return loss

    def make_step(self, losses: "list[EagerLoss | None]") -> None:
        """Records that the call updates the weights.

        Args:
            losses: The results of `new_loss` for the losses of the update.

        Raises:
            ValueError: If another call trains the layer in the same step.
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
                f"Layer '{calls.owner}' was called twice in one training step, with a loss on "
                "each call. Its weights are updated once per batch, in the backward pass of "
                "one call. Concatenate the inputs and call the layer once."
            )
        calls.num_steps += 1
        self._has_stepped = True

    def _other_in_step(self, loss: "EagerLoss | None") -> bool:
        """Returns whether there is a loss on another call in the same training step.

        Another loss may also come from an earlier step that failed or was interrupted, and
        whose tape a traceback keeps alive. The losses of one step are computed in the function
        that computes the gradients, so they share the frame of that function and all outer
        frames.
        """
        if loss is None:
            return False
        depth = len(os.path.commonprefix([loss.frames, call_stack()]))
        return any(
            not other.call._has_stepped and other.frames[:depth] == loss.frames[:depth]
            for other in self._calls.eager_losses
            if other.call is not self
        )


class EagerLoss:
    """A loss on a call in eager execution, and the call stack of its computation.

    Args:
        call: The call.
    """

    def __init__(self, call: TrainedCall) -> None:
        self.call, self.frames = call, call_stack()
