"""`python -m lab.language_models.heads`: memory and speed of the head of a language model.

Measures a training step of a small causal language model with random weights: keras-hub's GPT-2
with its own head and loss, the same model after `tflo.convert`, and a PyTorch model of the same
layers. Tokens are drawn at random, with probabilities that fall as in a power law. Everything
runs in float32 on one thread. Each run has its own process, and the methods take turns. A
method whose library
is not installed is left out (`pip install keras-hub torch`).
"""

import dataclasses
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys

from benchmarks.harness import machine, own_process
from benchmarks.harness.files import markdown, write_json
from lab.language_models.case import Case
from lab.language_models.keras_head import METHODS as KERAS_METHODS
from lab.language_models.keras_head import measure
from lab.shared.command_line import new_parser

# TensorFlow and PyTorch crash in one process, so this program does not import TensorFlow.
_TORCH_PROGRAM = (
    "import json, sys\n"
    "from lab.language_models import torch_head\n"
    "print(json.dumps(torch_head.measure(json.loads(sys.argv[1]))))"
)
METHODS = {
    "keras-hub's head and loss, Adam": "keras_hub",
    "convert, SoftmaxLoss, LazyAdam": "exact",
    "convert, SampledSoftmaxLoss, LazyAdam": "sampled",
    "PyTorch, cross_entropy, fused AdamW": "torch",
    "PyTorch, linear_cross_entropy in chunks, fused AdamW": "torch_in_chunks",
    "PyTorch, linear_cross_entropy, default chunks, fused AdamW": "torch_in_default_chunks",
}


def main(arguments=None):
    """Measures what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    names = [field.name for field in dataclasses.fields(Case)]
    case = Case(**{name: getattr(options, name) for name in names})
    report = {"machine": machine.describe(), **dataclasses.asdict(case), "runs": []}
    for _ in range(options.runs):
        for method in filter(_is_installed, options.methods):
            report["runs"].append({"method": method, **_figures(METHODS[method], case)})
            print(report["runs"][-1], flush=True)
            if options.json:
                write_json(options.json, report)
    print(table(report["runs"], case))
    return report


def table(runs, case):
    """Returns the median, least and largest figure of the runs of each method, as Markdown."""
    head = "method", "MiB of a step", "peak MiB of the process", "CPU s per step"
    rows = []
    for method in dict.fromkeys(run["method"] for run in runs):
        own = [run for run in runs if run["method"] == method]
        seconds = [run["cpu_ms"] / 1e3 for run in own]
        rows.append(
            [
                method,
                _median_and_range([run["step_mb"] for run in own], 0),
                _median_and_range([run["peak_mb"] for run in own], 0),
                _median_and_range(seconds, 2),
                _median_and_range([case.batch_size * case.length / one for one in seconds], 0),
            ]
        )
    return markdown([*head, "tokens per CPU s"], rows)


def _median_and_range(values, digits):
    median, least, most = (
        f"{function(values):,.{digits}f}" for function in (statistics.median, min, max)
    )
    return median if least == most else f"{median} ({least} to {most})"


def _is_installed(method):
    library = "torch" if METHODS[method].startswith("torch") else "keras_hub"
    return importlib.util.find_spec(library) is not None


def _figures(name, case):
    """Returns the figures of one run, in a process of its own."""
    if name in KERAS_METHODS:
        return own_process.call(measure, name, case)
    root = str(pathlib.Path(__file__).parents[2])
    given = json.dumps({"method": name, **dataclasses.asdict(case)})
    process = subprocess.run(
        [sys.executable, "-c", _TORCH_PROGRAM, given],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )
    return json.loads(process.stdout.splitlines()[-1])


def _parser():
    parser = new_parser("language_models.heads", __doc__)
    add = parser.add_argument
    for field in dataclasses.fields(Case):
        add(f"--{field.name.replace('_', '-')}", type=int, default=field.default)
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS)[:-1], metavar="METHOD")
    add("--runs", type=int, default=3, help="of each method")
    add("--json", help="file for the figures")
    return parser


if __name__ == "__main__":
    main()
