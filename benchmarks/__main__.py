"""`python -m benchmarks NAME`; a new benchmark is one line in `BENCHMARKS`."""

import importlib
import os
import sys

BENCHMARKS = {
    "demo": "train four models on 202,458 classes, compare them, and predict",
    "step": "time and memory of a training step, by number of classes, width and batch size",
    "profile": "which parts of a training step take how long",
    "race": "precision of each method against seconds of training",
    "tune": "the best learning rate of each method, on a validation split",
    "table": "finished runs of one task, as a table and a picture",
    "search": "recall against time of the samplers' searches",
    "gpu_kernels": "GPU kernels that the steps need, and where they wait for a GPU",
    "gpu_check": "train on the first GPU with stock operations, and compare with the CPU",
    "retrieval": "recall against time of indexes, exports and other libraries",
}


def main(arguments):
    """Runs the benchmark that the first argument names; returns the exit code."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if not arguments or arguments[0] not in BENCHMARKS:
        lines = [f"  {name:11}{text}" for name, text in BENCHMARKS.items()]
        print("usage: python -m benchmarks NAME [options]", *lines, sep="\n")
        print("For the programs of our notes, see lab/README.md.")
        return 0 if arguments in (["-h"], ["--help"]) else 2
    importlib.import_module(f"benchmarks.{arguments[0]}").main(arguments[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
