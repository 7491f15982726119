"""`python -m lab.mutation.sample`: which planted faults do the short and the long suite find?

Plants the faults of the tables, one at a time, in a copy of the last commit. Compiles the copy
if the fault is in C++, and runs the tests of the fault: first those of `make test` and, if they
pass, those of `make test-slow`. C++ tests do not run, so faults in C++ must be found from
Python. Takes about an hour on two cores.
"""

import argparse
import json
import pathlib

from benchmarks.harness.files import markdown
from lab.mutation.table import FAULTS
from lab.mutation.tree import Tree
from lab.shared.command_line import new_parser


def main() -> None:
    """Tests the faults, or prints the results of earlier runs."""
    options = _options()
    if options.table:
        print(table([row for path in options.table for row in json.loads(path.read_text())]))
        return
    tree, rows = Tree(options.tree, options.timeout), []
    if options.json.exists():
        rows = json.loads(options.json.read_text())
    done = {row["fault"] for row in rows}
    for part in options.parts:
        for fault in FAULTS[part]:
            if fault.title in done:
                continue
            short, long = tree.test(fault)
            rows.append(
                {
                    "part": part,
                    "fault": fault.title,
                    "file": fault.file,
                    "short": short.found,
                    "long": long.found,
                    "by": long.by,
                    "seconds": round(short.seconds + (0 if short.found else long.seconds)),
                }
            )
            print(json.dumps(rows[-1]), flush=True)
            options.json.write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))


def table(rows: list[dict]) -> str:
    """Returns the results as a Markdown table, with a line of totals."""
    word = {True: "yes", False: "**no**"}
    lines = []
    for row in rows:
        by = f"`{row['by'].removeprefix('tests/')}`" if row["by"] else ""
        cells = [row["part"], row["fault"], word[row["short"]], word[row["long"]], by]
        lines.append([*cells, str(row["seconds"])])
    found = markdown(["part", "fault", "short", "long", "found by", "s"], lines)
    short, long = (sum(row[suite] for row in rows) for suite in ("short", "long"))
    return f"{found}\n\nOf {len(rows)} faults short finds {short}, long {long}."


def _options() -> argparse.Namespace:
    parser = new_parser("mutation.sample", __doc__)
    parser.add_argument(
        "--parts", nargs="+", choices=FAULTS, default=list(FAULTS), help="parts to test"
    )
    parser.add_argument(
        "--tree", type=pathlib.Path, default=pathlib.Path("build/mutation"), help="the copy"
    )
    parser.add_argument(
        "--json",
        type=pathlib.Path,
        default=pathlib.Path("build/mutation.json"),
        help="results; faults in it are not tested again",
    )
    parser.add_argument("--timeout", type=float, default=1200, help="seconds of a pytest run")
    parser.add_argument(
        "--table", type=pathlib.Path, nargs="+", help="only print these results as a table"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
