"""`python -m tf_largeout.benchmarks table`: finished runs of one task side by side.

Reads the logs that `race` leaves in `--out` and compares them: the figures at the last point,
the best P@1 on the way, the time of an epoch, the training time to a half and to nine tenths
of the last P@1 of a reference, and the peak of memory. Times are of training alone.
"""

import argparse
import json
import pathlib

from tf_largeout.benchmarks.files import write_json
from tf_largeout.benchmarks.plots import draw_comparison
from tf_largeout.benchmarks.race import seconds_to

_PRECISIONS = {f"{n}{k}": f"{n.upper()}@{k}" for n in ("p", "psp") for k in (1, 3, 5)}
_SHARES = {"seconds_to_50": 0.5, "seconds_to_90": 0.9}
# Of a row: name in the report, heading, format.
COLUMNS = (
    ("title", "method", "{}"),
    *((name, heading, "{:.1f}") for name, heading in _PRECISIONS.items()),
    ("best_p1", "best P@1", "{:.1f}"),
    ("seconds", "s in all", "{:,.0f}"),
    ("seconds_an_epoch", "s an epoch", "{:,.1f}"),
    ("seconds_to_50", "s to 50 %", "{:,.1f}"),
    ("seconds_to_90", "s to 90 %", "{:,.1f}"),
    ("peak_mb", "peak MiB", "{:,.0f}"),
    ("learning_rate", "learning rate", "{:.2g}"),
)


def main(arguments=None):
    """Compares the logs of the command line and returns the report."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        logs = read_logs(options.logs)
        rows = comparison(logs, options.reference)
    except ValueError as error:
        parser.error(str(error))
    task = logs[0]["task"]
    report = {"task": task, "reference": options.reference, "rows": rows}
    print("\n".join(text_lines(rows)))
    print(f"s to 50 % and to 90 %: of the last P@1 of {options.reference}.")
    if options.json:
        write_json(options.json, report)
    if options.markdown:
        path = pathlib.Path(options.markdown)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(markdown_lines(rows)) + "\n")
    if options.png:
        draw_comparison(logs, rows, options.png, f"{task}: exact P@1 on test")
    return report


def read_logs(paths):
    """The logs with a point at `paths`: files, directories of them, reports of a race.

    Logs of one method, from several directories, get the directory's name into their title.

    Raises:
        ValueError: there is no log at a path, or the logs are of several tasks.
    """
    logs = []
    for path in map(pathlib.Path, paths):
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        # beside logs there may be the report of the same race
        found = [log for file in files for log in _logs_of(file, with_reports=path.is_file())]
        if not found:
            raise ValueError(f"{path} has no log of a run with a point of measurement.")
        logs += found
    kinds = sorted({_kind(log) for log in logs})
    if len(kinds) > 1:
        raise ValueError(f"The logs are not of one task and split: {', '.join(kinds)}.")
    methods = [log["method"] for log in logs]
    for log in logs:
        if methods.count(log["method"]) > 1:
            log["title"] += f" ({log['directory']})"
    return logs


def comparison(logs, reference):
    """One row a log, a dict by the names of `COLUMNS`, by falling P@1; None where unknown.

    Raises:
        ValueError: not exactly one log has the method or title `reference`.
    """
    references = [log for log in logs if reference in (log["method"], log["title"])]
    if len(references) != 1:
        raise ValueError(
            f"The reference {reference!r} must be method or title of one log; it is that of "
            f"{len(references)} among: {', '.join(log['method'] for log in logs)}; "
            f"{'; '.join(log['title'] for log in logs)}."
        )
    aims = {name: share * references[0]["points"][-1]["p1"] for name, share in _SHARES.items()}
    # logs of earlier versions do not tell; all are of one task
    num_examples = max(log.get("num_examples", 0) for log in logs)
    rows = [_row(log, aims, num_examples) for log in logs]
    return sorted(rows, key=lambda row: -row["p1"])


def _row(log, aims, num_examples):
    last = log["points"][-1]
    examples_a_second = last["examples"] / last["seconds"]
    return {
        "title": log["title"],
        "method": log["method"],
        **{name: last.get(name) for name in _PRECISIONS},
        "best_p1": max(point["p1"] for point in log["points"]),
        "seconds": last["seconds"],
        "seconds_an_epoch": num_examples / examples_a_second if num_examples else None,
        **{name: seconds_to(log, aim) for name, aim in aims.items()},
        "peak_mb": log["peak_mb"],
        "learning_rate": log["settings"]["learning_rate"],
        "settings": log["settings"],
    }


def text_lines(rows):
    """The rows as lines of text with aligned columns."""
    cells = _cells(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            [line[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        )
        for line in cells
    ]


def markdown_lines(rows):
    """The rows as lines of a markdown table."""
    head, *body = ["| " + " | ".join(line) + " |" for line in _cells(rows)]
    return [head, "|---" + "|---:" * (len(COLUMNS) - 1) + "|", *body]


def _cells(rows):
    """Heading and rows as texts; '-' for what is unknown or was not reached."""
    lines = [[heading for _, heading, _ in COLUMNS]]
    for row in rows:
        values = [(row[name], form) for name, _, form in COLUMNS]
        lines.append(["-" if value is None else form.format(value) for value, form in values])
    return lines


def _logs_of(file, with_reports):
    try:
        content = json.loads(file.read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{file} cannot be read as JSON: {error}") from error
    content = content if isinstance(content, dict) else {}
    several = content.get("methods", {}) if with_reports else {}
    found = [content, *several.values()]
    return [
        {**log, "directory": file.absolute().parent.name}
        for log in found
        if log.get("points") and "method" in log
    ]


def _kind(log):
    return log["task"] + (" (validation)" if log.get("on_validation") else "")


def _parser():
    parser = argparse.ArgumentParser(
        "python -m tf_largeout.benchmarks table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--logs", nargs="+", required=True, help="logs, directories of logs, race reports")
    add(
        "--reference",
        default="softmax",
        help="method or title of the log whose P@1 the times are to",
    )
    add("--json", help="file for the figures")
    add("--markdown", help="file for the table")
    add("--png", help="file for the picture")
    return parser
