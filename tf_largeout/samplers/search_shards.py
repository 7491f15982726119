"""Search structures over the class rows of a layer, with a part per shard of the rows."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import tensorflow as tf

from tf_largeout.classes.class_scorer import ClassScorer
from tf_largeout.ops import devices
from tf_largeout.samplers.sampler import ClassLayer, Sampler
from tf_largeout.variables.replicas import local_variable

_SEED_BITS = 48  # above those of seeds and of replicas


class _Structure(Protocol):
    """A search structure over the rows of one table."""

    @property
    def build(self) -> Callable[..., None]:
        """Creates its state, from `num_rows`, arguments of its own and an `AddWeight`."""


_Part = TypeVar("_Part", bound=_Structure)
_Found = TypeVar("_Found")


class SearchShards(Generic[_Part]):
    """A search structure per table of the class rows, which together are used as one.

    There is one table, unless the layer has shards. The part of a table is on the device that
    has the rows, and works there. Only queries, ids, scores and seeds cross the network.

    Args:
        classes: The classes.
        make: Makes the structure of a table.

    Attributes:
        tables: The tables, in the order of the classes.
        parts: The structure of each table.
    """

    def __init__(self, classes: ClassScorer, make: Callable[[], _Part]) -> None:
        self.tables = classes.shards()
        self.parts = [make() for _ in self.tables]

    def build(self, sampler: Sampler, layer: ClassLayer, *arguments: Any) -> None:
        """Creates the state of all parts, as weights of the layer.

        Args:
            sampler: The sampler, which adds the weights.
            layer: The layer.
            *arguments: Arguments of `build` of a part, between `num_rows` and `add_weight`.
        """
        for table, part in zip(self.tables, self.parts, strict=True):
            add_weight = functools.partial(sampler.add_weight, layer, shard=table)
            part.build(table.num_rows, *arguments, add_weight)

    def each(self, function: Callable[..., _Found], *own: Sequence[Any]) -> list[_Found]:
        """Calls `function(table, part, *own_of_table)` on the device of each table.

        Args:
            function: The function.
            *own: Sequences with an entry per table.

        Returns:
            The results, in the order of the tables.
        """
        found = []
        for table, *arguments in zip(self.tables, self.parts, *own, strict=True):
            with table.place():
                found.append(function(table, *arguments))
        return found


def best_of_shards(
    found: Sequence[tuple[tf.Tensor, tf.Tensor]], k: int, is_sorted: bool = True
) -> tuple[tf.Tensor, tf.Tensor]:
    """Merges the best rows that each part found.

    Args:
        found: `(scores, ids)` of each part, float32 and int64 `[B, m]`.
        k: How many rows to return; m if there is one part.
        is_sorted: Whether the best come first.

    Returns:
        `(scores, ids)`: `[B, k]`.
    """
    if len(found) == 1:
        return found[0]
    scores, ids = (tf.concat(parts, axis=1) for parts in zip(*found, strict=True))
    best_scores, places = tf.math.top_k(scores, k, sorted=is_sorted)
    return best_scores, tf.gather(ids, places, batch_dims=1)


def draw_shards(shares: tf.Tensor, num_draws: int, seed: tf.Tensor) -> tf.Tensor:
    """Draws shards independently.

    Args:
        shares: Float `[batch, num_shards]`; the probabilities are in proportion to them.
        num_draws: Number of draws per query.
        seed: int64 `[2]`.

    Returns:
        int32 `[batch, num_draws]`.
    """
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
