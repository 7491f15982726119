"""Builds the C++ op library against the TensorFlow that is installed."""

import concurrent.futures
import os
import pathlib
import subprocess

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).parent
SIMD_FLAGS = {
    "generic": [],
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"],
}
WARNINGS = ["-Wall", "-Wno-sign-compare", "-Wno-deprecated-declarations", "-Wno-interference-size"]


class BuildOps(build_ext):
    def get_ext_filename(self, fullname):
        return fullname.replace(".", os.sep) + ".so"

    def build_extension(self, ext):
        import tensorflow as tf

        out = pathlib.Path(self.get_ext_fullpath(ext.name))
        temp = pathlib.Path(self.build_temp)
        temp.mkdir(parents=True, exist_ok=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        jobs = []
        for src in sorted(ROOT.glob("custom_ops/*/*.cc")):
            if src.name.endswith("_test.cc") or src.name == "testing.cc":
                continue
            levels = SIMD_FLAGS if src.name.endswith("_simd.cc") else {None: []}
            for level, flags in levels.items():
                obj = temp / f"{src.parent.name}-{src.stem}{'-' + level if level else ''}.o"
                define = [f"-DLARGEOUT_SIMD={level}"] if level else []
                tf_flags = tf.sysconfig.get_compile_flags() if src.parent.name != "core" else []
                cmd = ["g++", "-std=c++17", "-O3", "-fPIC", "-ffp-contract=fast", "-MMD", f"-I{ROOT}",
                       *WARNINGS, *flags, *define, *tf_flags, "-c", str(src), "-o", str(obj)]
                jobs.append((cmd, obj))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda job: self._compile(*job), jobs))
        subprocess.check_call(["g++", "-shared", "-o", str(out), *[str(o) for _, o in jobs],
                               *tf.sysconfig.get_link_flags()])

    def _compile(self, cmd, obj):
        dep = obj.with_suffix(".d")
        if obj.exists() and dep.exists():
            files = dep.read_text().replace("\\\n", " ").split(":", 1)[1].split()
            if all(os.path.exists(f) and os.path.getmtime(f) < obj.stat().st_mtime for f in files):
                return
        subprocess.check_call(cmd)


setup(
    name="tf_largeout",
    version="0.1.0",
    packages=find_packages(include=["tf_largeout", "tf_largeout.*"]),
    ext_modules=[Extension("tf_largeout.ops._largeout_ops", sources=[])],
    cmdclass={"build_ext": BuildOps},
)
