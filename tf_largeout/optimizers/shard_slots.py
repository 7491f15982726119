"""The state of optimizers in files, where some of their variables are shards of a table."""

from collections.abc import Mapping, MutableMapping
from typing import Any

import keras

from tf_largeout import row_shards, sharded_checkpoint

_WRAPPERS = (keras.optimizers.MultiOptimizer, keras.optimizers.LossScaleOptimizer)


def save(optimizer: keras.optimizers.Optimizer, store: MutableMapping[str, Any]) -> None:
    """Puts its state into `store`, as if no table were sharded: one by one, as Keras does."""
    for number, variable in enumerate(row_shards.whole(optimizer.variables)):
        store[str(number)] = variable.numpy()


def load(optimizer: keras.optimizers.Optimizer, store: Mapping[str, Any]) -> None:
    """Takes its state from `store`, whatever the number of shards that it was saved from.

    Where the file has another number of variables Keras warns, and leaves all as it is.
    """
    variables = row_shards.whole(optimizer.variables)
    if len(store.keys()) != len(variables):
        keras.optimizers.Optimizer.load_own_variables(optimizer, store)
        return
    for number, variable in enumerate(variables):
        variable.assign(store[str(number)])


def keep_wrappers_whole() -> None:
    """Lets optimizers of Keras that hold others save and load as if no table were sharded.

    `Model.compile` makes such by itself, so there is no class of our own to take. Where no
    variable is a shard they do what they did.
    """
    for cls in _WRAPPERS:
        if "_largeout_children" not in vars(cls):
            cls._largeout_children = cls._trackable_children
            cls._trackable_children = _children
            cls.save_own_variables, cls.load_own_variables = save, load


def _children(
    self: keras.optimizers.Optimizer, save_type: str = "checkpoint", **kwargs: Any
) -> Any:
    return sharded_checkpoint.children(self, self._largeout_children(save_type, **kwargs))
