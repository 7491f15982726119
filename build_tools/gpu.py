"""What the build says about GPU kernels."""

import os
import pathlib
import re
import runpy
import shutil

from build_tools import tensorflow_install

_CARDS = tensorflow_install.ROOT / "tf_largeout" / "ops" / "gpu_cards.py"


def notice(library: pathlib.Path) -> str | None:
    """Returns what the user should know about the GPU kernels of a library that was built.

    None if the kernels run on this machine's GPUs, and if nothing suggests that the user wants
    kernels: they need nvcc, TensorFlow's version for GPUs, and LARGEOUT_GPU not set to 0.
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
    return "GPU kernels were left out; LARGEOUT_GPU=1 builds them, see docs/gpu.md."
