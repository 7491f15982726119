"""`all_or_none`: gradients that can be read only after all are computed."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tf_largeout.ops import devices
from tf_largeout.types import Gradient, Variable


def all_or_none(
    grads: Sequence[Gradient], variables: Sequence[Variable], step: tf.Tensor
) -> tuple[list[Gradient], tf.Tensor]:
    """Returns the gradients and `step`, none of which can be read before all are computed.

    The function uses data dependencies. With control dependencies on the gradients of a
    `while_loop`, as in RNN layers, the first steps of a `tf.function` fail at random in
    TensorFlow 2.21. Gradients of variables on other machines (of shards) stay there: this
    machine waits for a signal from each server, and then sends a signal to each.

    Args:
        grads: One gradient per variable.
        variables: The variables.
        step: A number.
    """
    servers = [devices.server_of(variable) for variable in variables]
    kept: dict[str | None, list[tf.Tensor]] = {None: []}
    for gradient, server in zip(grads, servers, strict=True):
        kept.setdefault(server, []).extend(tf.nest.flatten(gradient, expand_composites=True))
    local = kept.pop(None)
    if kept:
        with tf.control_dependencies(
            [_arrived(server, parts) for server, parts in kept.items()]
        ):
            step = tf.identity(step)
    *local, step = tf.identity_n([*local, step])
    for server, parts in kept.items():
        with tf.device(server), tf.control_dependencies([step]):
            kept[server] = [tf.identity(part) for part in parts]
    return _packed(grads, servers, {None: local, **kept}), step


def _arrived(server: str | None, parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns a number on `server`, which can be read only after all `parts` are computed."""
    with tf.device(server), tf.control_dependencies(parts):
        return tf.identity(tf.size(parts[0]))


def _packed(
    grads: Sequence[Gradient], servers: Sequence[str | None], kept: dict[str | None, Any]
) -> list[Gradient]:
    """Replaces the tensors in gradients by those of each device."""
    rest = {server: iter(parts) for server, parts in kept.items()}
    found = []
    for gradient, server in zip(grads, servers, strict=True):
        like = tf.nest.flatten(gradient, expand_composites=True)
        parts = [next(rest[server]) for _ in like]
        found.append(tf.nest.pack_sequence_as(gradient, parts, expand_composites=True))
    return found
