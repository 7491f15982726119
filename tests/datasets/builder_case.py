"""tfds's own test of a builder, on tiny sources that are made for it."""

import pathlib
import tempfile

import tensorflow_datasets as tfds


class BuilderCase(tfds.testing.DatasetBuilderTestCase):
    """A subclass writes `write_sources(folder)`."""

    MOCK_OUT_FORBIDDEN_OS_FUNCTIONS = False  # Sources are local files.

    @classmethod
    def setUpClass(cls):
        cls._sources = tempfile.TemporaryDirectory()
        cls.EXAMPLE_DIR = cls._sources.name
        cls.write_sources(pathlib.Path(cls.EXAMPLE_DIR))
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls._sources.cleanup()
