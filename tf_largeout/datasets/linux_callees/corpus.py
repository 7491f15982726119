"""Downloads, parses and caches the corpus of linux_callees."""

from tf_largeout.datasets.cache import cached
from tf_largeout.datasets.linux_callees import c_functions, source
from tf_largeout.datasets.linux_callees.function_table import FunctionTable
from tf_largeout.datasets.linux_callees.source_tree import source_files
from tf_largeout.datasets.linux_callees.vocabularies import VOCABULARIES, select
from tf_largeout.datasets.parser_workers import ParserWorkers

_PARSER_VERSION = 1  # Increase it when the parsed form changes.


def corpus(folders, vocabulary="functions"):
    """Returns the `Corpus` with one of the three label vocabularies.

    Args:
        folders: `Folders` of the dataset. If the package is missing, it is downloaded to
            `folders.manual`.
        vocabulary: `"functions"`; `"constants"`, which adds identifiers in capitals; or
            `"fields"`, which also adds struct fields. Defaults to `"functions"`.
    """
    if vocabulary not in VOCABULARIES:
        raise ValueError(
            f"The label vocabulary of linux_callees must be one of {', '.join(VOCABULARIES)}. "
            f"Received: {vocabulary!r}."
        )
    package = source.PACKAGE
    name = f"linux_callees-v{_PARSER_VERSION}-{package.sha256[:12]}.npz"

    def parse():
        files = source_files(package.ensure(folders.manual))
        workers = ParserWorkers(c_functions.__file__)
        return FunctionTable.from_batches(workers.parse(files))

    return select(cached(folders.parsed / name, FunctionTable, parse), vocabulary)
