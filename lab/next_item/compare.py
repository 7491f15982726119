"""`python -m lab.next_item.compare`: next-item models of several libraries after equal time.

Each method trains for `--seconds` CPU seconds on one thread. It is evaluated on the way, and
its test figures are those of the best validation NDCG. Each run has its own process, and its
figures are kept in `--out`, so an interrupted series can be continued. The methods are those of
`keras_runs.py` and `torch_runs.py`. The table and the file show all kept runs.
"""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np

from benchmarks.harness import machine
from benchmarks.harness.files import markdown, write_json
from lab.next_item import data, watch
from lab.shared.command_line import new_parser
from lab.shared.figures import mean_and_deviation


def main(arguments=None):
    """Runs what the command line says and prints the table."""
    options = _parser().parse_args(arguments)
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    arrays = out / f"{options.dataset}.npz"
    sizes = arrays.with_suffix(".sizes.json")
    if not sizes.exists():
        write_json(
            sizes, data.write(arrays, options.dataset, options.evaluated, options.pieces)
        )
    for seed in options.seeds:
        for method in options.methods:
            _run(method, seed, options, arrays, out)
    kept = sorted(out.glob(_name(options, "*", "*")))
    report = {
        "machine": machine.describe(),
        "dataset": options.dataset,
        **json.loads(sizes.read_text()),
        "most_popular": most_popular(arrays),
        "runs": [json.loads(path.read_text()) for path in kept],
    }
    write_json(options.json or out / f"{options.dataset}.json", report)
    print(table(report["runs"]))
    print("most popular items:", report["most_popular"])
    return report


def most_popular(arrays):
    """The test figures of a ranking by the counts of the items, without training."""
    with np.load(arrays) as file:
        kept = dict(file)
    counts = kept["counts"][:, None].astype(np.float32)
    return watch.ranks_of(kept, "test", lambda ids: np.ones([len(ids), 1], np.float32), counts)


def table(runs):
    """Returns the test figures as Markdown, in per cent: mean ± deviation over the seeds."""
    kinds = [kind for kind in ("unseen", "all") if kind in runs[0]["results"][0]["test"]]
    names = [f"{name}, {kind}" for kind in kinds for name in ("NDCG@10", "HitRate@10")]
    rows = []
    for method in dict.fromkeys(run["method"] for run in runs):
        own = [run for run in runs if run["method"] == method]
        best = [best_result(run) for run in own]
        cells = [
            mean_and_deviation([100 * one["test"][kind][figure] for one in best])
            for kind in kinds
            for figure in ("ndcg", "hit_rate")
        ]
        last = [run["results"][-1] for run in own]
        cells += [
            "/".join(f"{one['seconds']:.0f}" for one in best),
            f"{sum(one['steps'] for one in last) / len(last):,.0f}",
            f"{sum(1e3 * one['seconds'] / one['steps'] for one in last) / len(last):.1f}",
            f"{max(run['peak_mib'] for run in own):,.0f}",
        ]
        rows.append([method, *cells])
    head = ["method", *names, "at s", "steps", "CPU ms per step", "peak MiB"]
    return markdown(head, rows)


def best_result(run):
    """Returns the evaluation with the best NDCG on the validation items."""
    kind = "unseen" if "unseen" in run["results"][0]["validation"] else "all"
    return max(run["results"], key=lambda one: one["validation"][kind]["ndcg"])


def _name(options, method, seed):
    return f"{options.dataset}-{method}-{seed}-{options.seconds:g}.json"


def _run(method, seed, options, arrays, out):
    """Runs a method in a process of its own, unless its figures are kept."""
    path = out / _name(options, method, seed)
    if path.exists():
        return
    pythons = {"torch": options.torch, "rectools": options.torch, "keras": options.keras_hub}
    python = pythons.get(method.partition("_")[0], sys.executable)
    given = {
        "method": method,
        "data": arrays,
        "seed": seed,
        "out": path,
        "seconds": options.seconds,
        "learning-rate": options.learning_rate,
        "dropout": options.dropout,
    }
    subprocess.run(
        [
            *(python, "-m", "lab.next_item.run"),
            *(f"--{name}={value}" for name, value in given.items()),
            *("--fractions", *map(str, options.fractions)),
        ],
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    run = json.loads(path.read_text())
    print(method, seed, best_result(run)["test"], flush=True)


def _parser():
    parser = new_parser("next_item.compare", __doc__)
    add = parser.add_argument
    add("--dataset", default="ml_100k", choices=data.DATASETS)
    add("--methods", nargs="+", default=["log_uniform", "uniform"])
    add("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add("--seconds", type=float, default=30, help="CPU seconds of training")
    add("--fractions", type=float, nargs="+", default=[0.25, 0.5, 0.75, 1], help="evaluations")
    add("--learning-rate", type=float, default=3e-3, help="of our model, also in PyTorch")
    add("--dropout", type=float, default=0.2)
    add("--evaluated", type=int, default=10_000, help="most users to evaluate")
    add("--pieces", type=int, default=200_000, help="most pieces of a text")
    add("--torch", default=sys.executable, help="interpreter with rectools[torch]")
    add("--keras-hub", default=sys.executable, help="interpreter with keras-hub")
    add("--json", help="file of all kept runs of the data set and of these seconds")
    add("--out", default="benchmark-results/next_item", help="folder of the runs")
    return parser


if __name__ == "__main__":
    main()
