"""The build backend: setuptools, which compiles against the TensorFlow beside it.

TensorFlow becomes a build requirement only where none is installed, as in
`pip install .[cpu]` in a bare virtual environment.
"""

from setuptools import build_meta
from setuptools.build_meta import *

from build_tools import tensorflow_install


def get_requires_for_build_wheel(config_settings=None):
    """The requirements of setuptools, and TensorFlow where there is none."""
    return build_meta.get_requires_for_build_wheel(config_settings) + _tensorflow()


def get_requires_for_build_editable(config_settings=None):
    """The requirements of setuptools, and TensorFlow where there is none."""
    return build_meta.get_requires_for_build_editable(config_settings) + _tensorflow()


def _tensorflow() -> list[str]:
    return [] if tensorflow_install.find() else [tensorflow_install.REQUIREMENT]
