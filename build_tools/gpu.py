"""GPU kernels: whether they are requested, and the notice after a build."""

import os
import pathlib
import re
import runpy
import shutil

from build_tools import tensorflow_install
from build_tools.errors import BuildError

_CARDS = tensorflow_install.ROOT / "tf_largeout" / "ops" / "gpu_cards.py"


def is_wanted() -> bool:
    """Returns whether the environment requests GPU kernels with LARGEOUT_GPU=1.

    Raises:
        BuildError: If LARGEOUT_GPU is neither 0, 1 nor unset.
    """
    value = os.environ.get("LARGEOUT_GPU", "")
    if value not in ("", "0", "1"):
        raise BuildError(
            f"LARGEOUT_GPU is {value!r}. Expected 1 (compile the GPU kernels with nvcc), 0 or "
            "unset (do not compile them)."
        )
    return value == "1"


def notice(library: pathlib.Path) -> str | None:
    """Returns a notice for the user about the GPU kernels of a new library, or None.

    If the library has GPU kernels, the notice says why they cannot run on this machine. If it
    has none, the notice says how to build them, provided that nvcc and TensorFlow for GPUs are
    installed and LARGEOUT_GPU is not set.
    """
    cards = runpy.run_path(str(_CARDS))
    record = re.search(cards["RECORD"], library.read_bytes())
    if record:
        reason = cards["why_unusable"](record.group(), cards["find_machine"]())
        return reason and f"warning: the ops will run on the CPU of this machine. {reason}."
    found = tensorflow_install.find()
    nvcc = shutil.which(os.environ.get("NVCC", "nvcc"))
    if "LARGEOUT_GPU" in os.environ or not nvcc or not found or not found.can_use_gpu:
        return None
    return "GPU kernels were not built. To build them, set LARGEOUT_GPU=1; see docs/gpu.md."
