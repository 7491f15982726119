"""What the build makes: the op library, the C++ tests, programs over the CUDA launchers."""

import pathlib

from build_tools import compilers, cuda, parts, tensorflow_install
from build_tools.objects import Object
from build_tools.parts import ROOT as ROOT


def build_op_library(output: pathlib.Path, sanitize: bool = False) -> None:
    """Compiles ops, kernels, core and, as build_tools.cuda decides, cuda into one library.

    Args:
        output: where to write the library.
        sanitize: with AddressSanitizer and UBSan, for `make test-asan`.

    Raises:
        BuildError: if a compiler or TensorFlow is missing, unfit, or fails.
    """
    cxx, tensorflow = compilers.find_cxx(), tensorflow_install.find_supported()
    sanitizers = _sanitizers(sanitize)
    nvcc = cuda.find_for(tensorflow, cxx)
    flags = parts.tensorflow_flags(tensorflow, sanitizers)
    objects = parts.core(cxx, sanitizers) + parts.kernels_and_ops(cxx, flags, nvcc is not None)
    libraries = tensorflow.link_flags
    if nvcc is not None:
        objects += parts.launchers(nvcc)
        libraries = nvcc.link_flags + libraries
    parts.link([cxx, "-shared", *sanitizers], objects, libraries, output)


def build_tests(output: pathlib.Path, sanitize: bool = False) -> None:
    """Compiles core and every X_test.cc, without TensorFlow, into one program."""
    cxx, sanitizers = compilers.find_cxx(), _sanitizers(sanitize)
    objects = parts.core(cxx, sanitizers) + parts.check_frame(cxx, sanitizers)
    objects += parts.emulated_runtime(cxx, sanitizers) + parts.tests(cxx, sanitizers)
    parts.link([cxx, *sanitizers], objects, ["-lpthread"], output)


def build_cuda_check(output: pathlib.Path, local: bool = False) -> None:
    """Compiles core, cuda and cuda/check, without TensorFlow, into one program.

    Args:
        output: where to write the program.
        local: for the GPUs of this machine alone, where they can be asked.

    Raises:
        BuildError: if a compiler is missing, unfit, or fails.
    """
    cxx = compilers.find_cxx()
    nvcc = cuda.find(cxx, local)
    objects = _check(cxx, []) + parts.launchers(nvcc)
    objects += parts.cuda_files(nvcc, "cuda/check/*.cu")
    parts.link([cxx], objects, nvcc.link_flags, output)


def build_emulated_check(output: pathlib.Path, sanitize: bool = False) -> None:
    """Compiles the program of cuda-check for the emulated GPU."""
    cxx, sanitizers = compilers.find_cxx(), _sanitizers(sanitize)
    objects = _check(cxx, sanitizers) + parts.emulated_runtime(cxx, sanitizers)
    objects += parts.emulated(cxx, "cuda/*.cu", sanitizers)
    objects += parts.emulated(cxx, "cuda/check/*.cu", sanitizers)
    parts.link([cxx, *sanitizers], objects, ["-lpthread"], output)


def build_emulated_gpu(folder: pathlib.Path, sanitize: bool = False) -> None:
    """Compiles the op library for the emulated GPU, and that as a device of TensorFlow.

    Args:
        folder: where to write `_largeout_ops.so`, and `site-packages`: TensorFlow loads the
            device where that folder is on the path of Python.
        sanitize: with AddressSanitizer and UBSan.

    Raises:
        BuildError: if a compiler or TensorFlow is missing, unfit, or fails.
    """
    cxx, tensorflow = compilers.find_cxx(), tensorflow_install.find_supported()
    sanitizers = _sanitizers(sanitize)
    flags = parts.tensorflow_flags(tensorflow, sanitizers)
    link = [cxx, "-shared", *sanitizers]
    runtime = folder / "libcudart_emulated.so"
    parts.link(link, parts.emulated_runtime(cxx, sanitizers), [], runtime)

    device = parts.emulated(cxx, "emulated_gpu/tensorflow_*.cc", flags)
    device += parts.emulated(cxx, "cuda/memory.cu", sanitizers)
    device += parts.emulated(cxx, "cuda/stream.cu", sanitizers)
    plugin = folder / "site-packages" / "tensorflow-plugins" / "emulated_gpu.so"
    libraries = [f"-L{folder}", f"-l:{runtime.name}", *tensorflow.link_flags]
    parts.link(link, device, [*libraries, "-Wl,-rpath,$ORIGIN/../.."], plugin)

    objects = parts.core(cxx, sanitizers) + parts.kernels_and_ops(cxx, flags, for_gpu=True)
    objects += parts.emulated(cxx, "cuda/*.cu", sanitizers)
    output = folder / "_largeout_ops.so"
    parts.link(link, objects, [*libraries, "-Wl,-rpath,$ORIGIN"], output)


def _sanitizers(wanted: bool) -> list[str]:
    return compilers.SANITIZE if wanted else []


def _check(cxx: str, flags: list[str]) -> list[Object]:
    """Core and the part of cuda/check that g++ compiles."""
    return parts.core(cxx, flags) + parts.check_frame(cxx, flags) + parts.checks(cxx, flags)
