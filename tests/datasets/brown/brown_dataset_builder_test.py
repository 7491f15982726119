from unittest import mock

from tests.datasets.brown.archives import documents, write_archive
from tests.datasets.builder_case import BuilderCase
from tests.datasets.sources import pinned
from tf_largeout.datasets.brown import brown_dataset_builder, source


class BrownTest(BuilderCase):
    DATASET_CLASS = brown_dataset_builder.Builder
    SPLITS = {"train": 38, "test": 2}

    @classmethod
    def write_sources(cls, folder):
        archive = pinned(source.ARCHIVE, write_archive(folder / "brown.tgz", documents()))
        patcher = mock.patch.object(source, "ARCHIVE", archive)
        patcher.start()
        cls.addClassCleanup(patcher.stop)


del BuilderCase
