"""Architecture tests of the C++ code. Each failure says what to do instead."""

import re

from tests.source_tree import (
    CUSTOM_OPS,
    PACKAGE,
    cpp_code_lines,
    cpp_files,
    each_of,
    includes,
    name,
)

# Folders that each floor may include in quotes. Everything else is std, in <>.
FLOORS = {
    "core": ("custom_ops/core/",),
    "cuda": ("custom_ops/cuda/", "custom_ops/core/"),
    # Replaces CUDA's headers, and TensorFlow's GPU.
    "emulated_gpu": (
        "custom_ops/emulated_gpu/",
        "custom_ops/cuda/",
        "custom_ops/core/",
        "tensorflow/",
    ),
    "kernels": (
        "custom_ops/kernels/",
        "custom_ops/cuda/",
        "custom_ops/core/",
        "tensorflow/",
        "xla/",
        "unsupported/Eigen/",
    ),
    "ops": ("custom_ops/ops/", "custom_ops/core/", "tensorflow/core/framework/"),
}
# The folders of core, and which other folders each may include. Tests may include any.
CORE_FOLDERS = {
    "base": (),
    "linear_algebra": ("base",),
    "lsh": ("base",),
    "sampling": ("base",),
    "class_scan": ("base", "linear_algebra"),
    "candidates": ("base", "class_scan"),
    "inverted_file": ("base", "class_scan"),
    "kernel_tree": ("base", "class_scan", "linear_algebra"),
    "rows": ("base", "class_scan"),
    "optimizers": ("base", "rows"),
    "factored_output": ("base", "linear_algebra", "rows"),
}
# Other includes in <> that may have a folder in their name.
LIBRARIES = {"cuda": ("cub/",), "emulated_gpu": ("sys/",), "kernels": ("sys/",)}
# Headers without templates and inline functions. Of such functions the linker keeps one copy,
# which might be compiled for AVX-512 and run on any machine.
SIMD_HEADERS = {"cstddef", "cstdint", "cstring", "immintrin.h"}
LONGEST_FILE = 300  # lines of code

# Floors whose tests g++ compiles, without TensorFlow and without a GPU. cuda/check tests the
# launchers on the emulated GPU.
TESTED_FLOORS = ("core", "cuda", "emulated_gpu")

each_file = each_of(cpp_files())


@each_file
def test_includes_follow_the_levels_of_the_design(path):
    floor = path.relative_to(CUSTOM_OPS).parts[0]
    wrong = [
        header
        for header, in_quotes in includes(path)
        if not header.startswith(FLOORS[floor] if in_quotes else LIBRARIES.get(floor, ()))
        and (in_quotes or "/" in header or header.endswith(".h") and floor == "ops")
    ]
    assert not wrong, (
        f"{name(path)} includes {wrong}; custom_ops/{floor} may include {FLOORS[floor]} in "
        "quotes and std in <>. Algorithms go to core, what needs TensorFlow to kernels."
    )


def test_folders_of_core_include_no_later_folder():
    earlier = set()
    for folder, included in CORE_FOLDERS.items():
        assert set(included) <= earlier, f"core/{folder} includes a folder that comes later."
        earlier.add(folder)


@each_of(cpp_files("core"))
def test_core_includes_follow_the_folders(path):
    folder = path.relative_to(CUSTOM_OPS / "core").parts[0]
    assert folder in CORE_FOLDERS, f"{name(path)} is in no folder of CORE_FOLDERS."
    if path.stem.endswith("_test"):
        return
    allowed = {folder, *CORE_FOLDERS[folder]}
    wrong = [
        header
        for header, in_quotes in includes(path)
        if in_quotes and header.split("/")[2] not in allowed
    ]
    assert not wrong, f"{name(path)} includes {wrong}; core/{folder} may include {allowed}."


@each_of(sorted(CUSTOM_OPS.glob("core/*/*_simd.cc")))
def test_vectorised_files_include_no_std_templates(path):
    std = {header for header, in_quotes in includes(path) if not in_quotes}
    wrong = sorted(std - SIMD_HEADERS)
    assert not wrong, (
        f"{name(path)} includes {wrong}. It is compiled once per SIMD level, and the linker "
        "keeps one copy of an inline function of std: pass pointers and sizes, and keep std "
        "in X.cc. (tests/packaging/simd_objects_test.py looks at the objects themselves.)"
    )


def test_a_feature_has_the_same_stem_on_every_level():
    floors = {
        "custom_ops/ops/{}.cc": (CUSTOM_OPS / "ops", "*_ops.cc"),
        "custom_ops/kernels/{}.cc": (CUSTOM_OPS / "kernels", "*_ops.cc"),
        "tf_largeout/**/{}.py": (PACKAGE, "**/*_ops.py"),
    }
    stems = {
        pattern: {path.stem for path in folder.glob(glob)}
        for pattern, (folder, glob) in floors.items()
    }
    missing = [
        pattern.format(stem)
        for stem in sorted(set().union(*stems.values()))
        for pattern in floors
        if stem not in stems[pattern]
    ]
    assert not missing, f"One stem a feature on every floor: {missing} are missing."


@each_file
def test_headers_have_guards_with_their_paths(path):
    if path.suffix not in (".h", ".cuh"):
        return
    guard = "LARGEOUT_" + re.sub(r"\W", "_", name(path)).upper() + "_"
    text = path.read_text()
    assert f"#ifndef {guard}\n#define {guard}\n" in text, f"The guard of {name(path)}: {guard}"


@each_of(sorted(CUSTOM_OPS.glob("ops/*.cc")))
def test_every_op_has_a_prefix_a_shape_function_and_a_doc(path):
    for op in path.read_text().split("REGISTER_OP(")[1:]:
        op_name = op.split(")")[0]
        assert op_name.startswith('"Largeout'), f"Call {op_name} LargeoutX."
        for part in (".SetShapeFn(", ".Doc("):
            assert part in op, f"{op_name} in {name(path)} needs {part}...)."
        assert "UnknownShape" not in op, f"{op_name}: say what is known of the shapes."


@each_file
def test_cpp_tests_are_on_the_levels_without_tensorflow(path):
    allowed = path.suffix == ".cc" and path.relative_to(CUSTOM_OPS).parts[0] in TESTED_FLOORS
    assert allowed or not path.stem.endswith("_test"), (
        f"{name(path)}: C++ tests are linked by g++ without TensorFlow, so they are X_test.cc "
        f"in custom_ops/{TESTED_FLOORS}; test kernels from tests/ops."
    )


@each_of(cpp_files("core", "kernels", "ops"))
def test_code_for_nvcc_is_on_the_cuda_level(path):
    assert path.suffix in (".h", ".cc"), f"{name(path)}: CUDA lives in custom_ops/cuda."


@each_of(cpp_files("cuda", "kernels"))
def test_code_for_gxx_includes_no_cuda_header(path):
    wrong = [header for header, _ in includes(path) if re.match(r"cuda|cub/|.*\.cuh", header)]
    assert path.suffix in (".cu", ".cuh") or not wrong, (
        f"{name(path)} includes {wrong}; only .cu and .cuh know CUDA: launchers take a Stream."
    )


@each_of(cpp_files("kernels"))
def test_kernels_cannot_end_the_process(path):
    ends = r"public (tensorflow::)?OpKernel\b|->allocate_output\([^;{]*\{|set_dim\("
    found = (
        [] if path.stem == "largeout_op" else re.findall(f".*(?:{ends}).*", path.read_text())
    )
    assert not found, (
        f"{name(path)}: {found}. Kernels are LargeoutOps, and sizes go through AllocateOutput "
        "and SetDimWithStatus: what overflows or has no memory is an error of the op."
    )


@each_file
def test_no_formatter_has_split_the_end_of_a_launch(path):
    assert "> > >" not in path.read_text(), f"{name(path)}: nvcc wants >>> in one piece."


@each_file
def test_files_are_short_enough_to_read(path):
    lines = cpp_code_lines(path)
    assert lines <= LONGEST_FILE, (
        f"{name(path)} has {lines} lines of code: split it by concept."
    )
