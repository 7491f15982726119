"""Packages tf_largeout; `build_tools.native` says when its op library is compiled."""

import os
import pathlib
import shutil
import sys

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

ROOT = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from build_tools import native
from build_tools.errors import BuildError
from build_tools.requirements import EXTRAS, PACKAGE
from build_tools.tensorflow_install import VERSION


class BuildOps(build_ext):
    """Compiles the op library. Its file name has no ABI tag, as it is not a Python module."""

    def get_ext_filename(self, fullname):
        return fullname.replace(".", os.sep) + ".so"

    def build_extension(self, ext):
        output = pathlib.Path(self.get_ext_fullpath(ext.name)).absolute()
        # Folder of libraries that `build_tools.wheel` has compiled.
        compiled = os.environ.get("LARGEOUT_LIBRARIES")
        if compiled:
            shutil.copytree(compiled, output.parent, dirs_exist_ok=True)
            return
        from build_tools import cmake  # needs Linux

        try:
            cmake.build_op_library(output)
        except BuildError as error:
            if ext.optional:
                native.announce("it could not be compiled")
            raise CompileError(str(error)) from error


class PlatformWheel(bdist_wheel):
    """A wheel for any Python 3: the library, if there is one, does not use Python's API."""

    def run(self):
        # Otherwise modules of an earlier build would get into the wheel.
        shutil.rmtree(self.get_finalized_command("build").build_lib, ignore_errors=True)
        super().run()

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


REASON = native.why_not()
if REASON and not {"bdist_wheel", "editable_wheel"}.isdisjoint(sys.argv):
    native.announce(REASON)
LIBRARY = Extension(
    "tf_largeout.ops._largeout_ops", sources=[], optional=not native.is_required()
)

setup(
    name="tf_largeout",
    version=VERSION["__version__"],
    description="Keras 3 output layers for 10^5 to 10^8 classes, on TensorFlow or JAX",
    long_description=(ROOT / "README.md").read_text() if (ROOT / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10,<3.14",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: OS Independent",
        "Programming Language :: C++",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["tf_largeout", "tf_largeout.*"]),
    package_data={"tf_largeout": ["py.typed"]},
    ext_modules=[] if REASON else [LIBRARY],
    cmdclass={"build_ext": BuildOps, "bdist_wheel": PlatformWheel},
    install_requires=PACKAGE,
    extras_require=EXTRAS,
    zip_safe=False,
)
