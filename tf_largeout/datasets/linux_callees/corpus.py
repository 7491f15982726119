"""The corpus of linux_callees: fetched, parsed, cached."""

from tf_largeout.datasets.cache import cached
from tf_largeout.datasets.linux_callees import c_functions, source
from tf_largeout.datasets.linux_callees.function_table import FunctionTable
from tf_largeout.datasets.linux_callees.source_tree import source_files
from tf_largeout.datasets.linux_callees.vocabularies import VOCABULARIES, select
from tf_largeout.datasets.parser_workers import ParserWorkers

_PARSER_VERSION = 1  # To be raised with every change of what is parsed.


def corpus(folders, vocabulary="functions"):
    """The `Corpus` with one of the three label vocabularies.

    Args:
        folders: `Folders`; the package is fetched into the manual one if it is not there.
        vocabulary: `"functions"`; `"constants"`, which adds identifiers in capitals; or
            `"fields"`, which adds the struct fields that are used, too.
    """
    if vocabulary not in VOCABULARIES:
        raise ValueError(
            f"linux_callees has the label vocabularies {', '.join(VOCABULARIES)}. "
            f"Received: {vocabulary!r}."
        )
    package = source.PACKAGE
    name = f"linux_callees-v{_PARSER_VERSION}-{package.sha256[:12]}.npz"

    def parse():
        files = source_files(package.ensure(folders.manual))
        workers = ParserWorkers(c_functions.__file__)
        return FunctionTable.from_batches(workers.parse(files))

    return select(cached(folders.parsed / name, FunctionTable, parse), vocabulary)
