"""Compiles searches to graphs: calling ops eagerly can take longer than the search."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_largeout.classes.filtered_top_k import class_ids, require_width

Answer = tuple[tf.Tensor, tf.Tensor]

_MOST_GRAPHS = 16


class CompiledSearch:
    """Runs eager calls of a search's `top_k` as one graph per `k`, of which it keeps 16.

    Args:
        search: The `Search`.

    Attributes:
        search: As above.
    """

    def __init__(self, search: Any) -> None:
        self.search = search
        self._functions: dict[tuple[int, int | None], Callable[..., Answer]] = {}

    def top_k(self, queries: tf.Tensor, k: int, exclude: Any, allowed: Any) -> Answer:
        """See `Search.top_k`."""
        if allowed is not None or not tf.executing_eagerly():
            return self.search.top_k(queries, k, exclude, allowed)
        if exclude is None:
            return self._function(k, None)(queries)
        require_width(exclude, self.search.rows.matrix.num_classes)
        exclude = class_ids("exclude", exclude)
        if exclude.shape.rank != 2 or exclude.shape[0] != queries.shape[0]:
            return self.search.top_k(queries, k, exclude, None)  # raises the error
        # Pads to a power of 2, so that lists of many lengths share a graph.
        width = 1 << max(exclude.shape[1] - 1, 0).bit_length()
        padding = [[0, 0], [0, width - exclude.shape[1]]]
        return self._function(k, width)(queries, tf.pad(exclude, padding, constant_values=-1))

    def _function(self, k: int, width: int | None) -> Callable[..., Answer]:
        """Returns the graph for `k`, and for exclusions of this width, or None for none."""
        function = self._functions.pop((k, width), None)
        if function is None:
            specs = [tf.TensorSpec([None, self.search.rows.matrix.dim], tf.float32)]
            specs += [] if width is None else [tf.TensorSpec([None, width], tf.int64)]

            def run(*arguments: tf.Tensor) -> Answer:  # default arguments would make calls slow
                queries, exclude = arguments if width is not None else (*arguments, None)
                return self.search.top_k(queries, k, exclude, None)

            function = tf.function(run, autograph=False).get_concrete_function(*specs)
        self._functions[k, width] = function  # the last one is the one used last
        if len(self._functions) > _MOST_GRAPHS:
            del self._functions[next(iter(self._functions))]
        return function
