"""The build backend: setuptools, plus TensorFlow as a build requirement if none is installed.

Usually the ops are compiled against the installed TensorFlow. None is installed in a new
virtual environment, as in `pip install .[cpu]`. LARGEOUT_CUDA=1 selects TensorFlow for GPUs. If
the op library is not compiled (see `native`), setuptools is sufficient.
"""

from setuptools import build_meta
from setuptools.build_meta import *

from build_tools import gpu, native, tensorflow_install


def get_requires_for_build_wheel(config_settings=None):
    """Returns the requirements of setuptools, and those of the op library if it is compiled."""
    return build_meta.get_requires_for_build_wheel(config_settings) + _needed()


def get_requires_for_build_editable(config_settings=None):
    """Returns the requirements of setuptools, and those of the op library if it is compiled."""
    return build_meta.get_requires_for_build_editable(config_settings) + _needed()


def _needed() -> list[str]:
    if native.why_not():
        return []
    if tensorflow_install.find():
        return native.REQUIREMENTS
    wanted = tensorflow_install.GPU_REQUIREMENT
    return [*native.REQUIREMENTS, wanted if gpu.is_wanted() else tensorflow_install.REQUIREMENT]
