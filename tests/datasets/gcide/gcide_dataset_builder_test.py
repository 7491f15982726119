from unittest import mock

from tests.datasets.builder_case import BuilderCase
from tests.datasets.gcide.articles import articles, write_dictionary
from tests.datasets.sources import pinned
from tf_largeout.datasets.gcide import gcide_dataset_builder, source


class GcideTest(BuilderCase):
    DATASET_CLASS = gcide_dataset_builder.Builder
    SPLITS = {"train": 38, "test": 2}

    @classmethod
    def write_sources(cls, folder):
        package = pinned(source.PACKAGE, write_dictionary(folder / "gcide.deb", articles()))
        patcher = mock.patch.object(source, "PACKAGE", package)
        patcher.start()
        cls.addClassCleanup(patcher.stop)


del BuilderCase
