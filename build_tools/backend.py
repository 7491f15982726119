"""The build backend: setuptools, which compiles against the TensorFlow beside it.

TensorFlow becomes a build requirement only if none is installed, as in `pip install .[cpu]` in
a bare virtual environment. LARGEOUT_GPU=1 asks for the version for GPUs.
"""

from setuptools import build_meta
from setuptools.build_meta import *

from build_tools import cmake, tensorflow_install


def get_requires_for_build_wheel(config_settings=None):
    """The requirements of setuptools, and TensorFlow if none is installed."""
    return build_meta.get_requires_for_build_wheel(config_settings) + _tensorflow()


def get_requires_for_build_editable(config_settings=None):
    """The requirements of setuptools, and TensorFlow if none is installed."""
    return build_meta.get_requires_for_build_editable(config_settings) + _tensorflow()


def _tensorflow() -> list[str]:
    if tensorflow_install.find():
        return []
    if cmake.wants_gpu():
        return [tensorflow_install.GPU_REQUIREMENT]
    return [tensorflow_install.REQUIREMENT]
