"""The corpus of place_names: fetched, parsed, cached."""

from tf_largeout.datasets.cache import cached
from tf_largeout.datasets.corpus import Corpus
from tf_largeout.datasets.place_names import source
from tf_largeout.datasets.place_names.parser import parse_wheel

_PARSER_VERSION = 1  # To be raised with every change of what is parsed.


def corpus(folders, variant=None):
    """The `Corpus`.

    Args:
        folders: `Folders`; the wheel is fetched into the manual one if it is not there.
        variant: there is none; a name of one is refused.
    """
    if variant:
        raise ValueError(f"place_names has no variants. Received: {variant!r}.")
    wheel = source.WHEEL
    path = folders.parsed / f"place_names-v{_PARSER_VERSION}-{wheel.sha256[:12]}.npz"
    return cached(path, Corpus, lambda: parse_wheel(wheel.ensure(folders.manual)))
