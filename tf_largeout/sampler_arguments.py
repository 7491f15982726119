"""Names of samplers and checks of their arguments, for all backends."""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import keras

from tf_largeout.arguments import boolean, is_whole, whole_number

BY_NAME: dict[str, type[Any]] = {}
NEED_COUNTS = {"unigram"}  # names that only explain in an error how to pass the counts

# Of a search that starts when most of the watched labels have occurred often.
NUM_WATCHED, MET_OFTEN = 64, 15
_CLASSES_PER_STEP = 200
_EARLIEST, _LATEST = 100, 1_000
_PATIENCE = 3

_Sampler = TypeVar("_Sampler")


def named(name: str) -> Callable[[type[_Sampler]], type[_Sampler]]:
    """Registers a class of samplers under `name`."""

    def register(sampler: type[_Sampler]) -> type[_Sampler]:
        if name in BY_NAME:
            raise ValueError(f"The name {name!r} is already used by {BY_NAME[name].__name__}.")
        BY_NAME[name] = sampler
        return sampler

    return register


def by_name(name: str, num_classes: int | None = None) -> Any:
    """Returns the sampler of a name, with a smaller `num_sampled` if there are few classes."""
    if name in NEED_COUNTS:
        raise ValueError(
            f'A sampler by the name "{name}" has no class counts. Pass '
            "`UnigramSampler(num_sampled, counts=...)`, or a `UnigramSampler` after a call of "
            "its `adapt(labels)`."
        )
    make: Callable[..., Any] = BY_NAME[name]
    sampler = make()
    num_sampled = sampler.num_sampled if num_classes is None else max(1, num_classes // 2)
    if num_sampled >= sampler.num_sampled:
        return sampler
    if (getattr(sampler, "num_hard", None) or 0) >= num_sampled:
        return make(num_sampled, num_hard=num_sampled // 2 or None)
    return make(num_sampled)


def copied_tail(
    identifier: Any,
    num_sampled: int,
    base: type,
    may_be_tail: Callable[[Any], bool],
) -> Any:
    """Returns a copy of a sampler, not built, with another `num_sampled`.

    `base` is the base class of samplers. Raises a ValueError unless `may_be_tail`, or if a
    layer has built the sampler.
    """
    names = {name for name, sampler in BY_NAME.items() if may_be_tail(sampler)}
    tail = identifier
    if isinstance(tail, str) and tail in names:
        tail = by_name(tail)
    elif isinstance(tail, dict):
        tail = keras.saving.deserialize_keras_object(tail)
    if not isinstance(tail, base) or not may_be_tail(tail):
        raise ValueError(
            f"`tail` must be one of the names {sorted(names - NEED_COUNTS)} or a "
            "`StaticSampler`, which draws one sample per batch from a distribution that the "
            "model does not change. "
            f"Received: tail={identifier!r} (of type {type(identifier).__name__}). "
            f"{_way_out(tail, base)}"
        )
    copied: Any = copy.copy(tail)  # also copies what a config lacks, such as counts
    if copied.num_classes:
        raise ValueError(
            f"The {type(tail).__name__} in `tail` was already built by a layer with "
            f"{copied.num_classes} classes. Give each sampler a tail of its own."
        )
    copied.num_sampled = num_sampled
    return copied


def _way_out(tail: Any, base: type) -> str:
    if not isinstance(tail, base):
        return 'Leave `tail` out for "uniform".'
    sampler: Any = tail
    if not sampler.searches and not getattr(sampler, "shared", True):
        return "Create it with `shared=True`: all examples share the tail."
    return f"Make a {type(sampler).__name__} the sampler of the layer, with a static tail."


def require_free(sampler: Any) -> None:
    """Raises a ValueError if a layer has already built a sampler."""
    if sampler.num_classes:
        raise ValueError(
            f"This {type(sampler).__name__} was already built by a layer with "
            f"{sampler.num_classes} classes. Give each layer a sampler of its own."
        )


def checked_num_hard(num_hard: int | None, num_sampled: int, tail: Any) -> int | None:
    """Returns the argument `num_hard`, or raises a ValueError."""
    if num_hard is None:
        if tail in ("uniform", None):
            return None
        raise ValueError(
            "`tail` draws the `num_sampled - num_hard` classes that the search does not. "
            f"Received: tail={tail!r}, num_hard=None. Pass `num_hard` too, or leave `tail` "
            "out."
        )
    if is_whole(num_hard) and 1 <= num_hard < num_sampled:
        return int(num_hard)
    raise ValueError(
        "`num_hard` must be an integer of at least 1 and below `num_sampled`, so that at "
        "least one class is left for the tail, or None for no tail. "
        f"Received: num_hard={num_hard!r}, num_sampled={num_sampled}."
    )


def checked_start_step(step: int | None, has_tail: bool) -> int | None:
    """Returns the argument `start_step`, or raises a ValueError."""
    if step and not has_tail:
        raise ValueError(
            "Without a tail there are no negatives before the search starts. Received: "
            f"start_step={step}, num_hard=None. Leave out `start_step`, or pass "
            "`num_hard`."
        )
    return whole_number("start_step", step if has_tail else 0, least=0, or_none=True)


def first_and_last_step(num_classes: int) -> tuple[int, int]:
    """Returns between which steps a search starts, if `start_step` is None."""
    first = min(max(num_classes // _CLASSES_PER_STEP, _EARLIEST), _LATEST)
    return first, _PATIENCE * first


def shared_and_unique(shared: bool, unique: bool | None) -> tuple[bool, bool]:
    """Returns these arguments of a static sampler, or raises a ValueError."""
    shared = boolean("shared", shared)
    unique = shared if unique is None else boolean("unique", unique)
    if unique and not shared:
        raise ValueError(
            "With `shared=False`, the draws of an example are independent, so a class may "
            "be drawn several times. Received: shared=False, unique=True. Leave `unique` "
            "out, or pass `shared=True` for distinct classes that the batch shares."
        )
    return shared, unique


def check_size(sampler: Any, num_classes: int) -> None:
    """Raises a ValueError if a static sampler cannot draw from `num_classes` classes."""
    if sampler.unique and sampler.num_sampled > num_classes:
        instead = " or pass `unique=False`" if "unique" in sampler.get_config() else ""
        raise ValueError(
            f"{type(sampler).__name__} cannot draw {sampler.num_sampled} distinct "
            f"classes of {num_classes}. Received: num_sampled={sampler.num_sampled}, "
            f"num_classes={num_classes}. Lower `num_sampled`{instead}."
        )


def check_num_counts(sampler: Any, size: int, is_complete: bool, num_classes: int) -> None:
    """Raises a ValueError if counts of `size` classes, 0 if none, do not fit a layer."""
    if size > num_classes or (is_complete and 0 < size < num_classes):
        raise ValueError(
            f"{type(sampler).__name__} has counts of {size} classes, but the layer has "
            f"num_classes={num_classes}. Pass one count per class, or labels below "
            "num_classes to `adapt`."
        )


def no_counts(sampler: str) -> ValueError:
    """Returns the error of a sampler that draws without counts."""
    return ValueError(
        f"This {sampler} has no class counts. Pass `counts` if it has this "
        "argument, call `adapt` on the training labels, or load saved weights. Counts "
        "are saved with the weights, not in the config. So a copy of a model by "
        "`keras.models.clone_model` has no class counts until `clone.set_weights(...)`."
    )


def refuse_class_or_number(identifier: Any, base: type) -> None:
    """Raises a ValueError if a sampler is given as its class, or as the number of draws."""
    if isinstance(identifier, type) and issubclass(identifier, base):
        raise ValueError(
            f"`sampler` must be a sampler, not its class. Pass {identifier.__name__}(...)."
        )
    if is_whole(identifier):
        raise ValueError(
            "`sampler` must be a sampler, its name or None. Received: "
            f"sampler={identifier!r}. To draw {identifier} classes, pass "
            f"tf_largeout.samplers.UniformSampler({identifier}) or another sampler."
        )
