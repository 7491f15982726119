"""Compares the CUDA launchers with PyTorch and JAX, step by step, without TensorFlow.

Each does the same step with the same numbers. Its first run is held to a computation in
numpy, then it is timed. PyTorch and JAX take part where they are installed for GPUs.
"""

import argparse
import dataclasses
import functools
import importlib
import pathlib
import sys
from typing import Any

from custom_ops.cuda.compare import blas, library, measure, ours, problem, reference, report
from custom_ops.cuda.compare.problem import Sizes
from custom_ops.cuda.compare.step import TASKS, Offer

FAILED, WRONG_ARGUMENTS, NO_GPU = 1, 2, 3
MOST_TOP_K = 2048  # kMostTopK of class_scan.h

# The number of each size, and what it means.
SIZES = {
    "classes": (1_000_000, "how many classes"),
    "dim": (128, "how wide features and embeddings are"),
    "batch": (4096, "rows of a step of sampled softmax"),
    "sampled": (8192, "negatives, which the batch shares"),
    "exact_batch": (512, "rows of a pass over all classes"),
    "top_k": (100, "how many of the best classes"),
    "block": (65536, "classes at a time in the top-k of PyTorch and JAX"),
}


def parse(arguments: list[str]) -> argparse.Namespace:
    """Returns the options of a command line; exits where they are wrong."""
    parser = argparse.ArgumentParser(
        prog="python3 -m custom_ops.cuda.compare",
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for name, (default, meaning) in SIZES.items():
        option = "--" + name.replace("_", "-")
        parser.add_argument(option, type=positive_number, default=default, help=meaning)
    parser.add_argument(
        "--repetitions", type=positive_number, default=20, help="times of each step"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the random inputs")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, help="what to do")
    parser.add_argument("--compile", action="store_true", help="also with torch.compile")
    parser.add_argument("--json", type=pathlib.Path, help="a file for all numbers")
    path = pathlib.Path("build/libcuda_compare.so")
    parser.add_argument("--library", type=pathlib.Path, default=path, help="the launchers")
    options = parser.parse_args(arguments)
    if options.sampled > options.classes // 2:
        parser.error(f"--sampled is {options.sampled}: more than half of the classes")
    if options.top_k > min(options.classes, MOST_TOP_K):
        most = min(options.classes, MOST_TOP_K)
        parser.error(f"--top-k is {options.top_k}: expected at most {most}")
    return options


def positive_number(text: str) -> int:
    """Returns the number of an option; 1_000_000 is one too."""
    number = int(text.replace("_", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def sizes_of(options: argparse.Namespace) -> Sizes:
    """Returns the sizes among the options."""
    names = [field.name for field in dataclasses.fields(Sizes)]
    return Sizes(**{name: getattr(options, name) for name in names})


def frameworks(compiled: bool) -> tuple[dict[str, str], list[dict[str, list[Offer]]]]:
    """Imports what there is. Returns what each says of itself, and what each offers."""
    told, offered = {}, []
    for name, settings in (("torch", {"compiled": compiled}), ("jax", {})):
        try:
            module: Any = importlib.import_module(f"custom_ops.cuda.compare.{name}_steps")
        except (ImportError, OSError) as error:
            told[name] = f"not compared: {error}"
            continue
        if module.has_gpu():
            told[name] = module.version()
            offered.append(module.offers(**settings))
        else:
            told[name] = f"not compared: {module.version()} finds no GPU"
    return told, offered


def compare(
    options: argparse.Namespace, offered: list[dict[str, list[Offer]]]
) -> list[measure.Measurement]:
    """Measures every step of the tasks wished for."""
    sizes, measurements = sizes_of(options), []
    for task in options.tasks:
        offers = [offer for one in offered for offer in one.get(task, [])]
        if not offers:
            continue
        inputs, expected = given(task, sizes, options.seed)
        for offer in offers:
            one = measure.measure(task, offer, inputs, expected, options.repetitions)
            name = f"{task}: {offer.framework} {offer.variant} {offer.precision}"
            print(f"{name}: {one.failure or f'{one.median:.3f} ms'}", flush=True)
            measurements.append(one)
    return measurements


REFERENCES: dict[str, Any] = {
    "sampled": reference.sampled_softmax,
    "loss": reference.softmax_loss,
    "softmax": reference.softmax,
    "top_k": reference.top_k,
}


@functools.cache
def given(task: str, sizes: Sizes, seed: int) -> tuple[Any, Any]:
    """Returns the inputs of a task and what they lead to."""
    make: Any = problem.sampled_problem if task == "sampled" else problem.class_problem
    inputs = make(sizes, seed)
    return inputs, REFERENCES[task](inputs)


def main(arguments: list[str]) -> int:
    """Compares, prints the table; returns the exit status."""
    options = parse(arguments)
    try:
        launchers = library.load(options.library)
        machine = {"gpu": launchers.device_name()}
    except library.LibraryError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except library.CudaError as error:
        print(f"No GPU to run on: {error}. Nothing was run.")
        return NO_GPU
    told, offered = frameworks(options.compile)
    products = blas.load()
    machine |= {"cublas": str(products.version) if products else "not found"} | told
    # Ours last: an error that stops the GPU stops it for all who come after.
    measurements = compare(options, offered)
    measurements += compare(options, [ours.offers(launchers, products)])
    print("\n" + "\n".join(f"{name}: {text}" for name, text in machine.items()))
    if products is None:
        print("Without cuBLAS the sampled step of tf_largeout cannot run.")
    print("\n" + report.table(measurements, sizes_of(options)), end="")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(report.as_json(measurements, sizes_of(options), machine))
    mine = [one for one in measurements if one.framework == ours.NAME]
    return FAILED if not mine or any(one.failure for one in mine) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
