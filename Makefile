# Needs a clone, python3 (3.10 or newer) with its venv module, make, and g++ 9 or newer.
# `make PYTHON=python3.12 test` uses another Python.

PYTHON ?= python3
# Number of pytest processes. Each imports TensorFlow (4 s, 0.5 GB).
JOBS ?= 2
# Each process runs whole files, in the order of tests/conftest.py.
PARALLEL := -n $(JOBS) --dist loadfile --no-loadscope-reorder
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DOCS_INSTALLED := $(VENV)/.installed_docs
# For the tests of Keras's JAX backend, without TensorFlow.
VENV_JAX := .venv_jax
JAX_INSTALLED := $(VENV_JAX)/.installed
LIBRARY := tf_largeout/ops/_largeout_ops.so
CXX_SOURCES = $(shell find custom_ops examples tests -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh')

# All versions are pinned, except by `make test-tensorflow`.
CONSTRAINTS := build_tools/constraints.txt
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c $(CONSTRAINTS)
UV := build/uv/bin/uv

# CMake and Ninja from PyPI, in .venv. Targets that need nothing else use those on the PATH if
# .venv has none. They do not mix both, as another version of Ninja would recompile everything.
CMAKE_INSTALLED := $(VENV)/.installed_cmake
BUILD = $$(test -x $(BIN)/ninja && echo $(BIN)/python || echo $(PYTHON)) -m build_tools
ifeq ($(and $(shell command -v cmake),$(shell command -v ninja)),)
  BUILD_READY := $(CMAKE_INSTALLED)
endif
# Where CMakePresets.json builds.
RELEASE := build/release
SANITIZE := build/sanitize
EMULATED_GPU := $(RELEASE)/emulated_gpu
BAZEL_LIBRARY := build/bazel/links-bin/external/tf_largeout/$(LIBRARY)

.PHONY: help install ops demo demo-sharded docs test lint test-cc test-py test-slow test-wheel test-asan bench
.PHONY: clean test-arm test-arm-python wheel test-tensorflow test-portable test-avx2 test-stock
.PHONY: test-jax test-launchers test-emulated-gpu fuzz fuzz-asan
.PHONY: cuda-compile cuda-check cuda-sanitize
.PHONY: bazel constraints gpu-check
.DEFAULT_GOAL := help
# Why the op library is not compiled; empty if it is.
NO_LIBRARY := $(shell $(PYTHON) -m build_tools.native)
# Targets share object files, and each compiles on all cores.
.NOTPARALLEL:

help:
	@echo "make demo           train on 202,458 places with four methods, and compare"
	@echo "make demo-sharded   the same data, with the classes on two servers of this machine"
	@echo "make test           lint, C++ tests, CUDA launchers on an emulated GPU, Python tests, some with AVX2 or stock operations, JAX"
	@echo "make lint           ruff, clang-format, mypy"
	@echo "make test-cc        C++ tests of core and of the emulated GPU (TEST=part of a name); without a venv"
	@echo "make test-py        Python tests (ARGS='tests/ops -k adam')"
	@echo "make test-portable  tests that depend on the processor, with AVX2, with SSE, with one thread"
	@echo "make test-stock     some Python tests with TensorFlow's own operations in place of the op library"
	@echo "make test-jax       tests of Keras's JAX backend, in their own environment without TensorFlow"
	@echo "make test-slow      Python tests, including slow ones: many draws, long training"
	@echo "make wheel          a wheel in dist/, with a library for each supported TensorFlow minor"
	@echo "make test-wheel     wheels and sdist in new virtual environments"
	@echo "make test-tensorflow VERSION=2.18  the main tests with another TensorFlow (STOCK=1: without the op library)"
	@echo "make test-launchers CUDA launchers on an emulated GPU against the CPU code; without a venv"
	@echo "make test-emulated-gpu  test-launchers, and the Python tests for GPUs on the emulated GPU"
	@echo "make test-asan      C++ tests, launchers and op tests with ASan and UBSan"
	@echo "make test-arm       op library for 64-bit ARM, C++ tests under qemu (TEST=part of a name)"
	@echo "make test-arm-python  the README example with 5,000 classes on TensorFlow for 64-bit ARM, under qemu"
	@echo "make fuzz           10,000 random calls of each op under a memory limit (ARGS=--help)"
	@echo "make fuzz-asan      2,500 random calls of each op with ASan and UBSan"
	@echo "make gpu-check      train on this machine's GPU with TensorFlow's operations, and compare with the CPU; needs no nvcc"
	@echo "make cuda-check     CUDA code on this machine's GPU against the CPU code (ARGS=--help)"
	@echo "make cuda-sanitize  the same with small inputs under compute-sanitizer"
	@echo "make cuda-compile   compile all CUDA code for all GPUs; needs no GPU"
	@echo "make bazel          build with Debian's Bazel: C++ tests, and the ops linked into a server of SavedModels"
	@echo "make docs           build the site of docs/ in build/docs, and check its links"
	@echo "make bench          benchmarks (NAME=step, race, search, ...; ARGS=--help)"
	@echo "make ops            rebuild the op library if its sources have changed"
	@echo "make constraints    pin the newest versions of all installed packages"
	@echo "make clean          remove .venv, .venv_jax and all build outputs"

$(CMAKE_INSTALLED): $(CONSTRAINTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) cmake ninja setuptools
	touch $@

# TensorFlow is installed first, because the op library is compiled against it. The library is
# built before the package, so that the compiler's progress is visible.
$(INSTALLED): $(CMAKE_INSTALLED) setup.py pyproject.toml tf_largeout/version.py build_tools/requirements.py
	$(PIP_INSTALL) "$$($(BIN)/python -m build_tools.tensorflow_install)"
	$(if $(NO_LIBRARY),,$(BIN)/python -m build_tools op_library --copy-to $(LIBRARY))
	$(PIP_INSTALL) --no-build-isolation -e ".[cpu,examples,test]"
	touch $@

install: $(INSTALLED)

ops: $(INSTALLED)
	@$(if $(NO_LIBRARY),,$(BIN)/python -m build_tools op_library --copy-to $(LIBRARY))

demo: ops
	$(BIN)/python -m benchmarks demo $(ARGS)

demo-sharded: ops
	$(BIN)/python examples/sharded.py $(ARGS)

ifdef NO_LIBRARY
test: lint test-jax test-py
else
test: lint test-cc test-launchers test-jax test-py test-avx2 test-stock
endif

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror $(CXX_SOURCES)
	$(BIN)/mypy

test-cc: $(BUILD_READY)
	@$(BUILD) cc_tests
	$(RELEASE)/cc_tests $(TEST)

# Cross-compiled against TensorFlow's headers for ARM. No Python test is run.
test-arm: $(CMAKE_INSTALLED)
	@$(BIN)/python -m build_tools op_library --preset arm
	@$(BIN)/python -m build_tools cc_tests --preset arm
	qemu-aarch64 -L /usr/aarch64-linux-gnu build/arm/cc_tests $(TEST)

# Trains the example of the README, with fewer classes and stock operations, under qemu.
test-arm-python: $(CMAKE_INSTALLED)
	$(BIN)/python -m build_tools.arm_python

test-launchers: $(BUILD_READY)
	@$(BUILD) emulated_check
	$(RELEASE)/custom_ops/emulated_gpu/emulated_check --small

test-py: ops
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

# Runs the tests marked `portable` with older instruction sets, and with one thread. `make test`
# runs some of them with AVX2.
AVX2 := ONEDNN_MAX_CPU_ISA=AVX2 LARGEOUT_SIMD_LEVEL=avx2
SOME_PORTABLE := tests/classes/sharded_matrix_test.py tests/classes/blockwise_test.py tests/classes/filtered_top_k_test.py \
  tests/retrieval/brute_force_index_test.py tests/serving/class_scores_test.py \
  tests/integration/sharded_tables_test.py::test_counts_of_a_pool_equal_those_of_one_shard
test-avx2: ops
	$(AVX2) $(BIN)/python -m pytest -q -m portable $(PARALLEL) $(SOME_PORTABLE)

# Runs models with stock operations. Those of `tests/ops/stock_*_test.py` run in `make test-py`.
STOCK_TESTS := tests/layers/embedding_bag_test.py tests/losses/properties_test.py tests/samplers/samplers_test.py \
  tests/serving/export_test.py tests/optimizers/training_test.py
test-stock: ops
	LARGEOUT_OPS=stock $(BIN)/python -m pytest -q $(PARALLEL) $(STOCK_TESTS) $(ARGS)

$(JAX_INSTALLED): build_tools/requirements.py $(CONSTRAINTS)
	test -x $(VENV_JAX)/bin/python || $(PYTHON) -m venv $(VENV_JAX)
	$(PYTHON) -m build_tools.requirements venv_jax > $(VENV_JAX)/requirements.txt
	$(VENV_JAX)/bin/python -m pip install --disable-pip-version-check -c $(CONSTRAINTS) \
	  -r $(VENV_JAX)/requirements.txt
	touch $@

test-jax: $(JAX_INSTALLED)
	$(VENV_JAX)/bin/python -m pytest tests/jax -n $(JOBS) $(ARGS)

PORTABLE := $(BIN)/python -m pytest -m portable $(PARALLEL) --durations=0 -q $(ARGS)
test-portable: ops
	$(AVX2) $(PORTABLE)
	ONEDNN_MAX_CPU_ISA=SSE41 LARGEOUT_SIMD_LEVEL=generic $(PORTABLE)
	TF_ENABLE_ONEDNN_OPTS=0 $(PORTABLE)
	taskset -c 0 $(PORTABLE)

test-slow: ops
	$(BIN)/python -m pytest $(PARALLEL) --run-slow $(ARGS)

wheel: $(INSTALLED)
	@$(BIN)/python -m build_tools.wheel $(ARGS)

test-wheel: ops
	$(BIN)/python -m pytest tests/packaging --run-slow $(ARGS)

# The environment is not deleted. TensorFlow must have a wheel for PYTHON. STOCK=1 tests stock
# operations, which need no compiler, also with versions that the op library does not support:
#   make test-tensorflow STOCK=1 VERSION=2.22 TENSORFLOW=tensorflow-cpu==2.22.0rc0
#   make test-tensorflow STOCK=1 VERSION=nightly TENSORFLOW="--pre tf-nightly-cpu"
TENSORFLOW = tensorflow-cpu==$(VERSION).*
OTHER := build/tensorflow-$(VERSION)
OTHER_PYTHON := $(OTHER)/bin/python
OTHER_LIBRARIES := $(CURDIR)/$(OTHER)/libraries
OTHER_OPS := $(if $(STOCK),LARGEOUT_OPS=stock,LARGEOUT_OPS_LIBRARY=$(OTHER_LIBRARIES)/_largeout_ops.so)
CORE_TESTS := tests/keras_internals_test.py tests/ops tests/metrics tests/retrieval tests/losses \
  tests/optimizers tests/serving/export_test.py
test-tensorflow:
	@test -n "$(VERSION)" || { echo "Which TensorFlow? make test-tensorflow VERSION=2.18"; exit 1; }
	test -x $(OTHER_PYTHON) || $(PYTHON) -m venv $(OTHER)
	$(OTHER_PYTHON) -m pip install --disable-pip-version-check --upgrade pip
	$(OTHER_PYTHON) -m pip install $(TENSORFLOW) $(if $(STOCK),,cmake ninja) "setuptools>=77"
	$(if $(STOCK),,$(OTHER_PYTHON) -m build_tools op_library --preset wheel --copy-to $(OTHER_LIBRARIES)/_largeout_ops.so)
	$(if $(STOCK),LARGEOUT_NATIVE=0,LARGEOUT_LIBRARIES=$(OTHER_LIBRARIES)) \
	  $(OTHER_PYTHON) -m pip install --no-build-isolation ".[test]"
	$(OTHER_OPS) $(OTHER_PYTHON) -m pytest --run-slow tests/readme_test.py tests/integration/workflows_test.py
	$(OTHER_OPS) $(OTHER_PYTHON) -m pytest $(PARALLEL) $(CORE_TESTS) $(ARGS)

# Runs the CUDA kernels, and `fit` with all samplers and optimizers, in TensorFlow on the emulated GPU.
test-emulated-gpu: ops test-launchers
	@$(BIN)/python -m build_tools emulated_gpu
	PYTHONPATH=$(EMULATED_GPU)/site-packages LARGEOUT_OPS_LIBRARY=$(EMULATED_GPU)/_largeout_ops.so \
	  LARGEOUT_GPU=1 $(BIN)/python -m pytest -m gpu -n $(JOBS) $(ARGS)

# Leaks are not detected, because TensorFlow and Python have many. libstdc++ is preloaded so
# that the sanitizer can intercept TensorFlow's exceptions.
PRELOAD = $(foreach name,asan ubsan stdc++,$(shell g++ -print-file-name=lib$(name).so))
test-asan: $(INSTALLED)
	@$(BIN)/python -m build_tools cc_tests --preset sanitize
	UBSAN_OPTIONS=print_stacktrace=1 $(SANITIZE)/cc_tests $(TEST)
	@$(BIN)/python -m build_tools emulated_check --preset sanitize
	UBSAN_OPTIONS=print_stacktrace=1 $(SANITIZE)/custom_ops/emulated_gpu/emulated_check --small
	@$(BIN)/python -m build_tools op_library --preset sanitize
	LD_PRELOAD="$(PRELOAD)" LARGEOUT_OPS_LIBRARY=$(SANITIZE)/_largeout_ops.so \
	  ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	  $(BIN)/python -m pytest tests/ops -p no:cacheprovider $(ARGS)

# Builds with Bazel, offline, from Debian packages: the C++ tests, the library for Python, and a
# program with the ops that runs exports as TensorFlow Serving does.
bazel: ops
	@$(BIN)/python -m build_tools.bazel
	LARGEOUT_OPS_LIBRARY=$(BAZEL_LIBRARY) $(BIN)/python -m pytest tests/papers/lsh/hash_ops_test.py \
	  tests/ops/class_scan_ops_test.py tests/ops/row_ops_test.py
	$(BIN)/python -m pytest tests/packaging/bazel_build_test.py --run-slow $(ARGS)

fuzz: ops
	$(BIN)/python -m tests.fuzz $(ARGS)

# A sanitizer needs the whole address space. It aborts the process if `new` cannot allocate
# memory, because it cannot throw; `--sanitize` counts these cases separately.
fuzz-asan: $(INSTALLED)
	@$(BIN)/python -m build_tools op_library --preset sanitize
	LD_PRELOAD="$(PRELOAD)" LARGEOUT_OPS_LIBRARY=$(SANITIZE)/_largeout_ops.so \
	  ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=1024 \
	  UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
	  $(BIN)/python -m tests.fuzz --sanitize --calls 2500 --patience 1200 $(ARGS)

# TensorFlow with CUDA in an environment of its own. It needs a GPU and its driver.
GPU_CHECK := build/gpu-check-venv
gpu-check:
	test -x $(GPU_CHECK)/bin/python || $(PYTHON) -m venv $(GPU_CHECK)
	LARGEOUT_NATIVE=0 $(GPU_CHECK)/bin/python -m pip install --disable-pip-version-check -q \
	  -c $(CONSTRAINTS) -e ".[gpu]"
	$(GPU_CHECK)/bin/python -m benchmarks gpu_check --json build/gpu_check.json $(ARGS)

# These need g++ and NVIDIA's CUDA toolkit, but not TensorFlow. Warnings of nvcc are errors here,
# unlike in the build of the op library for an install (LARGEOUT_CUDA=1).
CUDA_CHECK := build/cuda-check/cuda_check
cuda-compile: $(BUILD_READY)
	@$(BUILD) cuda_check --preset cuda-check -D CMAKE_CUDA_ARCHITECTURES=

cuda-check: $(BUILD_READY)
	@$(BUILD) cuda_check --preset cuda-check -D CMAKE_CUDA_ARCHITECTURES=native
	$(CUDA_CHECK) --json build/cuda_check.json $(ARGS)

cuda-sanitize: $(BUILD_READY)
	@$(BUILD) cuda_check --preset cuda-check -D CMAKE_CUDA_ARCHITECTURES=native
	compute-sanitizer --tool memcheck --leak-check full --error-exitcode 1 $(CUDA_CHECK) --small
	compute-sanitizer --tool racecheck --error-exitcode 1 $(CUDA_CHECK) --small

# The API reference is extracted from the sources, without TensorFlow or the op library.
$(DOCS_INSTALLED): build_tools/requirements.py $(CONSTRAINTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) $$($(PYTHON) -m build_tools.requirements docs)
	touch $@

docs: $(DOCS_INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(ARGS)
	@echo "Open file://$(CURDIR)/build/docs/index.html in a browser."

# Chooses the newest versions for $(CONSTRAINTS).
constraints:
	test -x $(UV) || $(PYTHON) -m venv build/uv
	build/uv/bin/python -m pip install --disable-pip-version-check --upgrade uv
	$(PYTHON) -m build_tools.constraints $(UV)

bench: ops
	$(BIN)/python -m benchmarks $(NAME) $(ARGS)

clean:
	rm -rf $(VENV) $(VENV_JAX) build dist *.egg-info $(LIBRARY) .pytest_cache .ruff_cache .mypy_cache
