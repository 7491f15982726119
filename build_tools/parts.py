"""The objects of each floor of custom_ops, and how they are linked."""

import dataclasses
import os
import pathlib

from build_tools import compilers, cuda
from build_tools.objects import Object, compile_all, run
from build_tools.tensorflow_install import TensorFlow

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "custom_ops"
TEST_MAIN = SOURCES / "core" / "testing.cc"
EMULATED_GPU = SOURCES / "emulated_gpu"


def core(cxx: str, flags: list[str]) -> list[Object]:
    """Core: each X_simd.cc once a SIMD level, the rest once."""
    objects = []
    for source in sorted(SOURCES.glob("core/*.cc")):
        if source == TEST_MAIN or source.name.endswith("_test.cc"):
            continue
        if not source.name.endswith("_simd.cc"):
            objects.append(_object(cxx, source, flags))
            continue
        for level, level_flags in compilers.simd_levels().items():
            level_flags = [*level_flags, f"-DLARGEOUT_SIMD={level}", *flags]
            objects.append(_object(cxx, source, level_flags, f"-{level}"))
    return objects


def tensorflow_flags(tensorflow: TensorFlow, sanitizers: list[str]) -> list[str]:
    """How g++ compiles what includes TensorFlow."""
    without = compilers.SANITIZE_WITH_TENSORFLOW if sanitizers else []
    return [*tensorflow.compile_flags, *sanitizers, *without]


def kernels_and_ops(cxx: str, flags: list[str], for_gpu: bool) -> list[Object]:
    """The shims between TensorFlow and core and, `for_gpu`, the launchers."""
    sources = sorted([*SOURCES.glob("kernels/*.cc"), *SOURCES.glob("ops/*.cc")])
    return [
        _object(cxx, one, flags)
        for one in sources
        if for_gpu or not one.name.endswith("_gpu.cc")
    ]


def launchers(nvcc: cuda.Nvcc) -> list[Object]:
    """The CUDA launchers."""
    return cuda_files(nvcc, "cuda/*.cu")


def cuda_files(nvcc: cuda.Nvcc, pattern: str) -> list[Object]:
    """The CUDA files that match `pattern`, by nvcc."""
    objects = []
    for source in sorted(SOURCES.glob(pattern)):
        output = ROOT / "build" / "objects" / source.parent.name / f"{source.stem}.cu.o"
        objects.append(Object((*nvcc.compile_command, f"-I{ROOT}"), source, output))
    return objects


def check_frame(cxx: str, flags: list[str]) -> list[Object]:
    """The part of cuda/check that needs no CUDA and checks nothing; its tests have it too."""
    sources = sorted(SOURCES.glob("cuda/check/*.cc"))
    needs_more = ("_test.cc", "_check.cc")
    return [_object(cxx, one, flags) for one in sources if not one.name.endswith(needs_more)]


def checks(cxx: str, flags: list[str]) -> list[Object]:
    """The checks of the launchers."""
    return [_object(cxx, one, flags) for one in sorted(SOURCES.glob("cuda/check/*_check.cc"))]


def tests(cxx: str, flags: list[str]) -> list[Object]:
    """Every X_test.cc, and their main function."""
    sources = sorted([*SOURCES.glob("**/*_test.cc"), TEST_MAIN])
    return [_object(cxx, source, ["-O1", *flags]) for source in sources]


def emulated_runtime(cxx: str, flags: list[str]) -> list[Object]:
    """The emulated GPU itself."""
    names = ("device_memory.cc", "kernel.cc", "runtime.cc")
    return [_object(cxx, EMULATED_GPU / name, flags) for name in names]


def emulated(cxx: str, pattern: str, flags: list[str]) -> list[Object]:
    """The CUDA files that match `pattern`, by g++ and for the emulated GPU."""
    own = [*flags, f"-I{EMULATED_GPU}", "-Wno-unknown-pragmas"]
    objects = [_object(cxx, one, own, "-emulated") for one in sorted(SOURCES.glob(pattern))]
    return [dataclasses.replace(one, command=(*one.command, "-x", "c++")) for one in objects]


def _object(cxx: str, source: pathlib.Path, flags: list[str], suffix: str = "") -> Object:
    """The object of one C++ source; builds with sanitizers have their own folder."""
    folder = "objects-asan" if compilers.SANITIZE[0] in flags else "objects"
    output = ROOT / "build" / folder / source.parent.name / f"{source.stem}{suffix}.o"
    return Object((cxx, *compilers.CXX_FLAGS, f"-I{ROOT}", *flags), source, output)


def link(command: list[str], objects: list[Object], libraries: list[str], output: pathlib.Path):
    """Compiles the objects and links them.

    Raises:
        BuildError: if a source does not compile, or the linker fails.
    """
    made = [str(path) for path in compile_all(objects)]
    output.parent.mkdir(parents=True, exist_ok=True)
    # Beside `output`, and renamed: a process may have the old one mapped.
    fresh = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    run([*command, *made, *libraries, "-o", str(fresh)], f"Linking {output.name}")
    fresh.replace(output)
