"""CUDA kernels: whether they are requested, and the notice after a build."""

import os
import pathlib
import re
import runpy
import shutil

from build_tools import native, tensorflow_install

_CARDS = tensorflow_install.ROOT / "tf_largeout" / "ops" / "gpu_cards.py"


def is_wanted() -> bool:
    """Returns whether the environment requests CUDA kernels with LARGEOUT_CUDA=1.

    Raises:
        BuildError: If LARGEOUT_CUDA is neither 0, 1 nor unset.
    """
    expected = "1 (compile the CUDA kernels with nvcc), 0 or unset (do not compile them)"
    return native.is_one("LARGEOUT_CUDA", expected)


def notice(library: pathlib.Path) -> str | None:
    """Returns a notice for the user about the CUDA kernels of a new library, or None.

    If the library has CUDA kernels, the notice says why they cannot run on this machine. If it
    has none, the notice says how to build them, provided that nvcc and TensorFlow for GPUs are
    installed and LARGEOUT_CUDA is not set.
    """
    cards = runpy.run_path(str(_CARDS))
    record = re.search(cards["RECORD"], library.read_bytes())
    if record:
        reason = cards["why_unusable"](record.group(), cards["find_machine"]())
        return (
            reason and f"warning: the CUDA kernels will not be used on this machine. {reason}."
        )
    found = tensorflow_install.find()
    nvcc = shutil.which(os.environ.get("NVCC", "nvcc"))
    if "LARGEOUT_CUDA" in os.environ or not nvcc or not found or not found.can_use_gpu:
        return None
    return (
        "The CUDA kernels of LSH, kernel trees and FactoredOutput were not built. To build "
        "them, set LARGEOUT_CUDA=1; see docs/gpu.md."
    )
