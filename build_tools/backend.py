"""The build backend: setuptools, plus TensorFlow as a build requirement if none is installed.

Usually the ops are compiled against the installed TensorFlow. None is installed in a new
virtual environment, as in `pip install .[cpu]`. LARGEOUT_GPU=1 selects TensorFlow for GPUs.
"""

from setuptools import build_meta
from setuptools.build_meta import *

from build_tools import cmake, tensorflow_install


def get_requires_for_build_wheel(config_settings=None):
    """Returns the requirements of setuptools, and TensorFlow if none is installed."""
    return build_meta.get_requires_for_build_wheel(config_settings) + _tensorflow()


def get_requires_for_build_editable(config_settings=None):
    """Returns the requirements of setuptools, and TensorFlow if none is installed."""
    return build_meta.get_requires_for_build_editable(config_settings) + _tensorflow()


def _tensorflow() -> list[str]:
    if tensorflow_install.find():
        return []
    if cmake.wants_gpu():
        return [tensorflow_install.GPU_REQUIREMENT]
    return [tensorflow_install.REQUIREMENT]
