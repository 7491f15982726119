"""Runs the builder tests of tensorflow-datasets on tiny source files."""

import contextlib
import pathlib
import tempfile

import pytest
import tensorflow_datasets as tfds

from tests.datasets.fake_sources import SOURCES

_SHORT = ("xmc",)  # builders_test.py prepares all datasets.


class _BuilderCase(tfds.testing.DatasetBuilderTestCase):
    MOCK_OUT_FORBIDDEN_OS_FUNCTIONS = False  # Source files are local files.

    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        cls.EXAMPLE_DIR = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(cls.source.written(pathlib.Path(cls.EXAMPLE_DIR)))
        super().setUpClass()


for _name, _source in SOURCES.items():
    _members = {
        "source": _source,
        "DATASET_CLASS": _source.builder,
        "SPLITS": {"train": _source.num_train, "test": _source.num_test},
        "BUILDER_CONFIG_NAMES_TO_TEST": _source.config and [_source.config],
    }
    if _name not in _SHORT:
        _members["pytestmark"] = pytest.mark.slow
    globals()[f"{_name}_case"] = type(f"{_name}_case", (_BuilderCase,), _members)
del _BuilderCase  # pytest must not run the base class.
