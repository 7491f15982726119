"""Samplers by name, and which of them can be a tail."""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import keras

from tf_largeout.arguments import is_whole
from tf_largeout.samplers.sampler import Sampler
from tf_largeout.types import Config

_Sampler = TypeVar("_Sampler", bound=Sampler)

BY_NAME: dict[str, type[Sampler]] = {}
NEED_COUNTS = {"unigram"}  # names that only explain in an error how to pass the counts


def named(name: str) -> Callable[[type[_Sampler]], type[_Sampler]]:
    """Registers a class of samplers under `name`."""

    def register(sampler: type[_Sampler]) -> type[_Sampler]:
        if name in BY_NAME:
            raise ValueError(f"The name {name!r} is already used by {BY_NAME[name].__name__}.")
        BY_NAME[name] = sampler
        return sampler

    return register


def may_be_tail(sampler: Sampler | type[Sampler]) -> bool:
    """Returns whether a `Sampler` or a sampler class can draw the shared tail of a search.

    The estimate of the partition function is unbiased only if the tail's expected counts are
    correct for all classes, whatever the search finds. Also, `rows_changed` is not called for a
    tail. A static sampler with `shared=False` draws no shared sample.
    """
    cls = sampler if isinstance(sampler, type) else type(sampler)
    is_shared = bool(getattr(sampler, "shared", True))
    return is_shared and not sampler.searches and cls.rows_changed is Sampler.rows_changed


def get(
    identifier: Sampler | Config | str | None, num_classes: int | None = None
) -> Sampler | None:
    """Returns the sampler for an identifier, as `keras.losses.get` does for losses.

    Args:
        identifier: None, a `Sampler`, a name such as "uniform" for a sampler with its default
            arguments, or a serialized sampler.
        num_classes: A sampler created by name draws at most half of this number of classes;
            None for no bound.

    Returns:
        The `Sampler`, or None. A `Sampler` is returned as it is.

    Raises:
        ValueError: If the identifier is unknown, or is "unigram", which needs counts.
    """
    if identifier is None or isinstance(identifier, Sampler):
        return identifier
    if isinstance(identifier, str) and identifier in BY_NAME:
        return _by_name(identifier, num_classes)
    if isinstance(identifier, dict):
        sampler = keras.saving.deserialize_keras_object(identifier)
        if isinstance(sampler, Sampler):
            return sampler
    if isinstance(identifier, type) and issubclass(identifier, Sampler):
        raise ValueError(
            f"`sampler` must be a sampler, not its class. Pass {identifier.__name__}(...)."
        )
    if is_whole(identifier):
        raise ValueError(
            "`sampler` must be a sampler, its name or None. Received: "
            f"sampler={identifier!r}. To draw {identifier} classes, pass "
            f"tf_largeout.samplers.UniformSampler({identifier}) or another sampler."
        )
    raise ValueError(
        f"Unknown sampler: {identifier!r}. Expected None, a `tf_largeout.samplers.Sampler`, "
        f"its serialized config, or one of the names {sorted(set(BY_NAME) - NEED_COUNTS)}. "
        "UnigramSampler, BernoulliSampler and BigramSampler have no names, because they need "
        "the counts of the labels: pass e.g. UnigramSampler(num_sampled, counts=...)."
    )


def make_tail(identifier: Sampler | Config | str | None, num_sampled: int) -> Sampler:
    """Returns the tail sampler for an identifier, with another `num_sampled`.

    Args:
        identifier: "uniform" or "log_uniform", a sampler that does not search (which is not
            changed), or a serialized one.
        num_sampled: Number of classes that the tail draws.

    Returns:
        A copy of the sampler, not built.

    Raises:
        ValueError: If the identifier is not a sampler that `may_be_tail`, or if a layer has
            already built the sampler.
    """
    names = {name for name, sampler in BY_NAME.items() if may_be_tail(sampler)}
    tail = identifier
    if isinstance(tail, str) and tail in names:
        tail = _by_name(tail)
    elif isinstance(tail, dict):
        tail = keras.saving.deserialize_keras_object(tail)
    if not isinstance(tail, Sampler) or not may_be_tail(tail):
        raise ValueError(
            f"`tail` must be one of the names {sorted(names - NEED_COUNTS)} or a "
            "`StaticSampler`, which draws one sample per batch from a distribution that the "
            "model does not change. "
            f"Received: tail={identifier!r} (of type {type(identifier).__name__}). "
            f"{_way_out(tail)}"
        )
    if tail.num_classes:
        raise ValueError(
            f"The {type(tail).__name__} in `tail` was already built by a layer with "
            f"{tail.num_classes} classes. Give each sampler a tail of its own."
        )
    tail = copy.copy(tail)  # also copies what a config lacks, such as counts
    tail.num_sampled = num_sampled
    return tail


def require_num_hard(tail: Any, num_hard: int | None) -> None:
    """Raises a ValueError if a `tail` other than the default is given without `num_hard`."""
    if num_hard is None and tail not in ("uniform", None):
        raise ValueError(
            "`tail` draws the `num_sampled - num_hard` classes that the search does not. "
            f"Received: tail={tail!r}, num_hard=None. Pass `num_hard` too, or leave `tail` out."
        )


def _by_name(name: str, num_classes: int | None = None) -> Sampler:
    """Returns the sampler of a name, with a smaller `num_sampled` if there are few classes."""
    if name in NEED_COUNTS:
        raise ValueError(
            f'A sampler by the name "{name}" has no class counts. Pass '
            "`UnigramSampler(num_sampled, counts=...)`, or a `UnigramSampler` after a call of "
            "its `adapt(labels)`."
        )
    make: Callable[..., Sampler] = BY_NAME[name]
    sampler = make()
    num_sampled = sampler.num_sampled if num_classes is None else max(1, num_classes // 2)
    if num_sampled >= sampler.num_sampled:
        return sampler
    if (getattr(sampler, "num_hard", None) or 0) >= num_sampled:
        return make(num_sampled, num_hard=num_sampled // 2 or None)
    return make(num_sampled)


def _way_out(tail: Any) -> str:
    if isinstance(tail, Sampler) and not tail.searches and not getattr(tail, "shared", True):
        return "Create it with `shared=True`: all examples share the tail."
    if isinstance(tail, Sampler):
        return f"Make a {type(tail).__name__} the sampler of the layer, with a static tail."
    return 'Leave `tail` out for "uniform".'
