"""What the build makes: the op library, the C++ tests, programs over the CUDA launchers."""

import os
import pathlib

from build_tools import compilers, cuda, tensorflow_install
from build_tools.objects import Object, compile_all, run

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "custom_ops"
TEST_MAIN = SOURCES / "core" / "testing.cc"


def build_op_library(output: pathlib.Path, sanitize: bool = False) -> None:
    """Compiles ops, kernels, core and, as build_tools.cuda decides, cuda into one library.

    Args:
        output: where to write the library.
        sanitize: with AddressSanitizer and UBSan, for `make test-asan`.

    Raises:
        BuildError: if a compiler or TensorFlow is missing, unfit, or fails.
    """
    cxx, tensorflow = compilers.find_cxx(), tensorflow_install.find_supported()
    sanitizers = compilers.SANITIZE if sanitize else []
    objects = core_objects(cxx, sanitizers)
    flags = [*tensorflow.compile_flags, *sanitizers]
    flags += compilers.SANITIZE_WITH_TENSORFLOW if sanitize else []
    nvcc = cuda.find_for(tensorflow, cxx)
    for source in sorted([*SOURCES.glob("kernels/*.cc"), *SOURCES.glob("ops/*.cc")]):
        if nvcc is not None or not source.name.endswith("_gpu.cc"):
            objects.append(_object(cxx, source, flags))
    cuda_flags: list[str] = []
    if nvcc is not None:
        objects += launchers(nvcc)
        cuda_flags = nvcc.link_flags
    outputs = [str(path) for path in compile_all(objects)]
    _link([cxx, "-shared", *sanitizers, *outputs, *cuda_flags, *tensorflow.link_flags], output)


def build_tests(output: pathlib.Path, sanitize: bool = False) -> None:
    """Compiles core and every X_test.cc, without TensorFlow, into one program."""
    cxx, sanitizers = compilers.find_cxx(), compilers.SANITIZE if sanitize else []
    tests = sorted([*SOURCES.glob("**/*_test.cc"), TEST_MAIN])
    objects = core_objects(cxx, sanitizers) + _check_frame(cxx, sanitizers)
    objects += [_object(cxx, source, ["-O1", *sanitizers]) for source in tests]
    outputs = [str(path) for path in compile_all(objects)]
    _link([cxx, *sanitizers, *outputs, "-lpthread"], output)


def build_cuda_check(output: pathlib.Path, local: bool = False) -> None:
    """Compiles core, cuda and cuda/check, without TensorFlow, into one program.

    Args:
        output: where to write the program.
        local: for the GPUs of this machine alone, where they can be asked.

    Raises:
        BuildError: if a compiler is missing, unfit, or fails.
    """
    cxx = compilers.find_cxx()
    own = _check_frame(cxx, [])
    own += [_object(cxx, one, []) for one in sorted(SOURCES.glob("cuda/check/*_check.cc"))]
    _build_over_launchers("cuda/check/*.cu", output, local, cxx, own, [])


def build_cuda_compare(output: pathlib.Path, local: bool = False) -> None:
    """Compiles core, cuda and cuda/compare, without TensorFlow, into a library of C functions.

    Args:
        output: where to write the library.
        local: for the GPUs of this machine alone, where they can be asked.

    Raises:
        BuildError: if a compiler is missing, unfit, or fails.
    """
    flags = ["-shared", "-Wl,--no-undefined"]
    _build_over_launchers("cuda/compare/*.cu", output, local, compilers.find_cxx(), [], flags)


def _build_over_launchers(
    sources: str,
    output: pathlib.Path,
    local: bool,
    cxx: str,
    own: list[Object],
    link_flags: list[str],
) -> None:
    """Links core, the launchers, the CUDA files that match `sources`, and the objects `own`."""
    nvcc = cuda.find(cxx, local)
    objects = core_objects(cxx, []) + launchers(nvcc) + own
    objects += [_cuda_object(nvcc, one) for one in sorted(SOURCES.glob(sources))]
    outputs = [str(path) for path in compile_all(objects)]
    _link([cxx, *link_flags, *outputs, *nvcc.link_flags], output)


def core_objects(cxx: str, flags: list[str]) -> list[Object]:
    """The objects of core: each X_simd.cc once a SIMD level, the rest once."""
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


def _link(command: list[str], output: pathlib.Path) -> None:
    """Links beside `output` and renames: a process may have the old one mapped."""
    output.parent.mkdir(parents=True, exist_ok=True)
    fresh = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    run([*command, "-o", str(fresh)], f"Linking {output.name}")
    fresh.replace(output)


def _object(cxx: str, source: pathlib.Path, flags: list[str], suffix: str = "") -> Object:
    """The object of one C++ source; builds with sanitizers have their own folder."""
    folder = "objects-asan" if compilers.SANITIZE[0] in flags else "objects"
    output = ROOT / "build" / folder / source.parent.name / f"{source.stem}{suffix}.o"
    return Object((cxx, *compilers.CXX_FLAGS, f"-I{ROOT}", *flags), source, output)


def _check_frame(cxx: str, flags: list[str]) -> list[Object]:
    """The objects of the part of cuda/check that needs no CUDA; its tests have it too."""
    sources = sorted(SOURCES.glob("cuda/check/*.cc"))
    needs_more = ("_test.cc", "_check.cc")
    return [_object(cxx, one, flags) for one in sources if not one.name.endswith(needs_more)]


def launchers(nvcc: cuda.Nvcc) -> list[Object]:
    """The objects of the CUDA launchers."""
    return [_cuda_object(nvcc, source) for source in sorted(SOURCES.glob("cuda/*.cu"))]


def _cuda_object(nvcc: cuda.Nvcc, source: pathlib.Path) -> Object:
    output = ROOT / "build" / "objects" / source.parent.name / f"{source.stem}.cu.o"
    return Object((*nvcc.compile_command, f"-I{ROOT}"), source, output)
