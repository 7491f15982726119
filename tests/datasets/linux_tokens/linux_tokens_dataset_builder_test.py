from unittest import mock

from tests.datasets.builder_case import BuilderCase
from tests.datasets.linux_callees.packages import sources, write_package
from tests.datasets.sources import pinned
from tf_largeout.datasets.linux_callees import source
from tf_largeout.datasets.linux_tokens import linux_tokens_dataset_builder


class LinuxTokensTest(BuilderCase):
    DATASET_CLASS = linux_tokens_dataset_builder.Builder
    SPLITS = {"train": 36, "test": 5}

    @classmethod
    def write_sources(cls, folder):
        package = pinned(source.PACKAGE, write_package(folder / "linux.deb", sources()))
        patcher = mock.patch.object(source, "PACKAGE", package)
        patcher.start()
        cls.addClassCleanup(patcher.stop)


del BuilderCase
