"""Arguments that `LSHSampler` had before `form` and `tables`; saved models have them."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tf_largeout.arguments import boolean, one_of
from tf_largeout.types import Config

_OF_TABLES = ("hash", "num_hashes", "num_tables", "rebuild_every", "rebuild_growth")
_OF_FORM = ("select", "shared")


def accept_former_arguments(init: Callable[..., None]) -> Callable[..., None]:
    """Decorates `LSHSampler.__init__`: it also takes the former arguments, as keywords.

    Raises, when the method is called:
        ValueError: If a former argument is passed together with the one that replaces it, or
            is out of range.
    """
    signature = inspect.signature(init)

    @functools.wraps(init)
    def init_with_former(*args: Any, **kwargs: Any) -> None:
        names = [name for name in (*_OF_FORM, *_OF_TABLES) if name in kwargs]
        if names:
            former = {name: kwargs.pop(name) for name in names}
            kwargs, args = signature.bind(*args, **kwargs).arguments, ()
            kwargs |= _converted(former, kwargs)
        init(*args, **kwargs)

    return init_with_former


def _converted(former: Config, arguments: Config) -> Config:
    """Returns `form` and `tables` instead of the former arguments.

    Args:
        former: The former arguments.
        arguments: The other arguments.
    """
    of_form, of_tables = (
        {name: former[name] for name in names if name in former}
        for names in (_OF_FORM, _OF_TABLES)
    )
    for new, replaced in (("form", of_form), ("tables", of_tables)):
        if replaced and arguments.get(new) is not None:
            raise ValueError(
                f"`{new}` replaces the former arguments {[*replaced]}. Received both: "
                f"{new}={arguments[new]!r} and {replaced}. Pass only `{new}`."
            )
    converted: Config = {}
    if of_form:
        converted["form"] = _form(arguments.get("num_hard"), **of_form)
    if of_tables:  # None stood for the default
        given = {name: value for name, value in of_tables.items() if value is not None}
        converted["tables"] = given
    return converted


def _form(num_hard: int | None, select: str = "walk", shared: bool | None = None) -> str | None:
    """Returns the `form` with the meaning of the arguments `select` and `shared`."""
    select = one_of("select", select, ["walk", "frequent"])
    if boolean("shared", shared, or_none=True):
        if num_hard is not None:
            raise ValueError(
                "`shared=True` draws one pool, but `num_hard` draws for each example. "
                f"Received: shared=True, num_hard={num_hard}. Pass only one of them."
            )
        return "pool"
    if num_hard is not None or (shared is None and select == "walk"):
        return None
    return select
