"""`python -m lab.retrieval.fastest FILE...`: the fastest setting of each method.

It reads reports of `python -m benchmarks retrieval`. For each recall, it prints the
setting with the least CPU time per query among those that reach the recall, with one query per
call. Nothing is measured.
"""

import json
import pathlib

from benchmarks.harness.files import markdown
from lab.shared.command_line import new_parser

# A recall is measured on other queries than those that determined a setting.
_TOLERANCE = 0.01


def main(arguments=None):
    """Prints the tables of the files of the command line."""
    parser = new_parser("retrieval.fastest", __doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--recalls", nargs="+", type=float, default=[0.95, 0.99])
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--batch", type=int, default=1, help="queries per call")
    options = parser.parse_args(arguments)
    for path in options.files:
        report = json.loads(pathlib.Path(path).read_text())
        rows = [
            row
            for row in report["rows"]
            if (row["k"], row["batch"]) == (options.k, options.batch)
            and not row["setting"].endswith(("excluded", "allowed"))
        ]
        print(path, table(rows, options.recalls), sep="\n\n", end="\n\n")


def table(rows, recalls):
    """Returns the fastest setting for each recall and method as Markdown, fastest first.

    MiB are from the method's first setting, and CPU seconds are from its longest build.

    Args:
        rows: Rows of a report with one k and batch size.
        recalls: The recalls to reach, less a tolerance of 0.01.
    """
    # Later settings of a method are built in a process that keeps memory of earlier ones, or
    # share the index of an earlier one.
    mib = {row["method"]: row["mib"] for row in reversed(rows)}
    built = {
        method: max(row["build_cpu_s"] for row in rows if row["method"] == method)
        for method in mib
    }
    head = ["method", "setting", "recall", "CPU ms per query", "built in CPU s", "MiB"]
    lines = []
    for recall in recalls:
        found = [fastest(rows, method, recall) for method in mib]
        lines += [
            [
                f"{row['method']}, {recall}",
                row["setting"],
                f"{row['recall']:.3f}",
                f"{row['cpu_ms']:.2f}",
                f"{built[row['method']]:,.0f}",
                f"{mib[row['method']]:,.0f}",
            ]
            for row in sorted(filter(None, found), key=lambda row: row["cpu_ms"])
        ]
    return markdown(head, lines)


def fastest(rows, method, recall):
    """Returns the row of a method with enough recall and the least CPU time; None without one.

    None too for an index that `retrieval.build` chose for another recall.
    """
    if "(recall=" in method and f"(recall={recall})" not in method:
        return None
    enough = [
        row for row in rows if row["method"] == method and row["recall"] >= recall - _TOLERANCE
    ]
    return min(enough, key=lambda row: row["cpu_ms"]) if enough else None


if __name__ == "__main__":
    main()
