from tests.datasets.builder_case import BuilderCase
from tests.datasets.xmc.files import write_xmc
from tf_largeout.datasets.xmc import xmc_dataset_builder


class XmcTest(BuilderCase):
    DATASET_CLASS = xmc_dataset_builder.Builder
    BUILDER_CONFIG_NAMES_TO_TEST = ["Eurlex-4K"]
    SPLITS = {"train": 4, "test": 2}

    @classmethod
    def write_sources(cls, folder):
        write_xmc(folder / "xmc" / "Eurlex-4K")


del BuilderCase
