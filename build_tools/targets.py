"""The two programs of the build: the op library and the C++ tests of core."""

import os
import pathlib

from build_tools import compilers, tensorflow_install
from build_tools.objects import Object, compile_all, run

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ROOT / "custom_ops"
TEST_MAIN = SOURCES / "core" / "testing.cc"


def build_op_library(output: pathlib.Path, sanitize: bool = False) -> None:
    """Compiles everything under custom_ops but the tests into one shared library.

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
    for source in sorted([*SOURCES.glob("kernels/*.cc"), *SOURCES.glob("ops/*.cc")]):
        objects.append(_object(cxx, source, flags))
    cuda, cuda_libraries = _cuda_objects()
    outputs = [str(path) for path in compile_all(objects + cuda)]
    link = [cxx, "-shared", *sanitizers, *outputs, *cuda_libraries, *tensorflow.link_flags]
    _link(link, output)


def build_tests(output: pathlib.Path, sanitize: bool = False) -> None:
    """Compiles core and its X_test.cc, without TensorFlow, into one program."""
    cxx, sanitizers = compilers.find_cxx(), compilers.SANITIZE if sanitize else []
    tests = sorted([*SOURCES.glob("**/*_test.cc"), TEST_MAIN])
    objects = core_objects(cxx, sanitizers)
    objects += [_object(cxx, source, ["-O1", *sanitizers]) for source in tests]
    outputs = [str(path) for path in compile_all(objects)]
    _link([cxx, *sanitizers, *outputs, "-lpthread"], output)


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


def _cuda_objects() -> tuple[list[Object], list[str]]:
    """The CUDA launchers and what they link with; nothing without nvcc."""
    nvcc, sources = compilers.find_nvcc(), sorted(SOURCES.glob("cuda/*.cu"))
    if nvcc is None or not sources:
        return [], []
    flags = ["-std=c++17", "-O3", "-Xcompiler", "-fPIC", f"-I{ROOT}", "-arch=all-major"]
    folder = ROOT / "build" / "objects" / "cuda"
    objects = [Object((nvcc, *flags), one, folder / f"{one.stem}.o") for one in sources]
    libraries = pathlib.Path(nvcc).resolve().parent.parent / "lib64"
    return objects, [f"-L{libraries}", "-lcudart_static", "-lrt", "-ldl", "-lpthread"]
