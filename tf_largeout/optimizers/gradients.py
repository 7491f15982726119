"""Gradients that may be sparse or dense, and `all_or_none` for those of a step."""

from collections.abc import Sequence

import tensorflow as tf

from tf_largeout.ops import devices, row_ops
from tf_largeout.types import Gradient, Scalar, Variable


class RowGradient(tf.IndexedSlices):
    """`IndexedSlices` that support `/`, with which Keras unscales gradients."""

    def __truediv__(self, scale: Scalar) -> "RowGradient":
        return RowGradient(self.values / scale, self.indices, self.dense_shape)


def divisible(gradient: Gradient) -> Gradient:
    """Returns a gradient that Keras can divide."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return RowGradient(gradient.values, gradient.indices, gradient.dense_shape)


def merged(gradient: Gradient | None) -> Gradient | None:
    """Returns the gradient with the gradients of repeated rows summed."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    values, ids = row_ops.merge_rows(tf.cast(gradient.values, tf.float32), gradient.indices)
    return tf.IndexedSlices(values, ids, gradient.dense_shape)


def values_of(gradient: Gradient | None) -> tf.Tensor | None:
    """Returns the values of a gradient, without the ids of the rows."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def with_values(gradient: Gradient | None, values: tf.Tensor | None) -> Gradient | None:
    """Returns a gradient with other values: sparse if `gradient` is, else dense."""
    if not isinstance(gradient, tf.IndexedSlices):
        return values
    return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)


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
    servers: list[str | None] = []
    kept: dict[str | None, list[tf.Tensor]] = {None: []}
    for gradient, variable in zip(grads, variables, strict=True):
        servers.append(devices.server_of(variable))
        parts = tf.nest.flatten(gradient, expand_composites=True)
        kept.setdefault(servers[-1], []).extend(parts)
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
    kept[None], found = local, []
    for gradient, server in zip(grads, servers, strict=True):
        count = len(tf.nest.flatten(gradient, expand_composites=True))
        parts, kept[server] = kept[server][:count], kept[server][count:]
        found.append(tf.nest.pack_sequence_as(gradient, parts, expand_composites=True))
    return found, step


def _arrived(server: str | None, parts: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns a number on `server`, which can be read only after all `parts` are computed."""
    with tf.device(server), tf.control_dependencies(parts):
        return tf.identity(tf.size(parts[0]))
