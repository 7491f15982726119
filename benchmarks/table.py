"""`python -m benchmarks table`: compares finished runs of one task.

Reads the logs that `race` wrote to `--out`. Compares the figures at the last point, the best
P@1, the time per epoch and peak memory. With a reference, also compares the training time to a
half and to nine tenths of its last P@1. Times are of training alone. `--columns costs` shows
the costs of training and answers instead.
"""

import json
import pathlib

import pandas as pd

from benchmarks.harness.files import markdown, new_parser, write_json
from benchmarks.harness.plots import draw_comparison
from benchmarks.race import seconds_to

_PRECISIONS = {f"{n}{k}": f"{n.upper()}@{k}" for n in ("p", "psp") for k in (1, 3, 5)}
_SHARES = {"seconds_to_50": 0.5, "seconds_to_90": 0.9}
# Of a row: name in the report, heading, format.
_FIRST = (
    ("title", "method", "{}"),
    *((name, heading, "{:.1f}") for name, heading in _PRECISIONS.items()),
)
LEARNING = (
    *_FIRST,
    ("best_p1", "best P@1", "{:.1f}"),
    ("seconds", "s in all", "{:,.0f}"),
    ("seconds_an_epoch", "s an epoch", "{:,.1f}"),
    ("seconds_to_50", "s to 50 %", "{:,.1f}"),
    ("seconds_to_90", "s to 90 %", "{:,.1f}"),
    ("peak_mb", "peak MiB", "{:,.0f}"),
    ("learning_rate", "learning rate", "{:.2g}"),
)
COSTS = (
    *_FIRST,
    ("cpu_seconds", "CPU s", "{:,.0f}"),
    ("wall_seconds", "wall s", "{:,.0f}"),
    ("grown_mb", "memory MiB", "{:,.0f}"),
    ("model_mb", "model MiB", "{:,.0f}"),
    ("query_ms_1", "ms per query", "{:.2f}"),
    ("query_ms_64", "in batches of 64", "{:.2f}"),
)
_COLUMNS = {"learning": LEARNING, "costs": COSTS}


def main(arguments=None):
    """Compares the logs of the command line and returns the report."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        logs = read_logs(options.logs)
        columns = _COLUMNS[options.columns]
        reference = options.reference if columns is LEARNING else None
        rows = comparison(logs, reference)
    except ValueError as error:
        parser.error(str(error))
    task = logs[0]["task"]
    report = {"task": task, "reference": reference, "rows": rows}
    print(text_table(rows, columns).to_string(index=False))
    if reference:
        print(f"s to 50 % and to 90 %: of the last P@1 of {reference}.")
    if options.json:
        write_json(options.json, report)
    if options.markdown:
        write_markdown(options.markdown, rows, columns)
    if options.png:
        draw_comparison(logs, rows, options.png, f"{task}: exact P@1 on test")
    return report


def read_logs(paths):
    """Returns the logs at `paths` with at least one point.

    A path is a log, a folder of logs, or the report of a race.
    If several folders have a log of one method, the folder's name is added to the title.

    Raises:
        ValueError: If a path contains no log, or the logs are of several tasks.
    """
    logs = []
    for path in map(pathlib.Path, paths):
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        # the folder of the logs may also contain the report of the race
        found = [log for file in files for log in _logs_of(file, with_reports=path.is_file())]
        if not found:
            raise ValueError(f"{path} contains no log of a run with at least one evaluation.")
        logs += found
    kinds = sorted({_kind(log) for log in logs})
    if len(kinds) > 1:
        raise ValueError(f"The logs are not of one task and split: {', '.join(kinds)}.")
    methods = [log["method"] for log in logs]
    for log in logs:
        if methods.count(log["method"]) > 1:
            log["title"] += f" ({log['directory']})"
    return logs


def comparison(logs, reference=None):
    """Returns a dict for each log, sorted by falling P@1.

    The keys are the names of the columns. An unknown value is None.

    Raises:
        ValueError: If `reference` is given and does not match exactly one log.
    """
    aims = _aims(logs, reference) if reference else dict.fromkeys(_SHARES)
    # logs of earlier versions do not contain it; all are of one task
    num_examples = max(log.get("num_examples", 0) for log in logs)
    rows = [_row(log, aims, num_examples) for log in logs]
    return sorted(rows, key=lambda row: -row["p1"])


def _aims(logs, reference):
    """Returns each of `_SHARES` times the last P@1 of the reference."""
    references = [log for log in logs if reference in (log["method"], log["title"])]
    if len(references) != 1:
        raise ValueError(
            "The reference must be the method or title of exactly one log. Received: "
            f"{reference!r}, which matches {len(references)} of the logs. Their methods are "
            f"{', '.join(log['method'] for log in logs)}. Their titles are "
            f"{'; '.join(log['title'] for log in logs)}."
        )
    return {name: share * references[0]["points"][-1]["p1"] for name, share in _SHARES.items()}


def _row(log, aims, num_examples):
    last = log["points"][-1]
    # other libraries do not report how many examples they used
    seconds_each = last["seconds"] / last["examples"] if "examples" in last else 0
    query_ms = log.get("query_ms", {})
    return {
        "title": log["title"],
        "method": log["method"],
        **{name: last.get(name) for name in _PRECISIONS},
        "best_p1": max(point["p1"] for point in log["points"]),
        "seconds": last["seconds"],
        "wall_seconds": last.get("wall_seconds"),
        "cpu_seconds": last.get("cpu_seconds"),
        "seconds_an_epoch": num_examples * seconds_each or None,
        **{name: aim and seconds_to(log, aim) for name, aim in aims.items()},
        "peak_mb": log["peak_mb"],
        **{name: log.get(name) for name in ("grown_mb", "model_mb")},
        **{f"query_ms_{size}": ms for size, ms in query_ms.items()},
        "learning_rate": log["settings"].get("learning_rate"),
        "settings": log["settings"],
    }


def text_table(rows, columns=LEARNING):
    """Returns a pandas table of texts, with "-" for unknown or unreached values."""
    table = pd.DataFrame(rows).reindex(columns=[name for name, _, _ in columns])
    for name, _, form in columns:
        table[name] = [("-" if pd.isna(value) else form.format(value)) for value in table[name]]
    return table.set_axis([heading for _, heading, _ in columns], axis=1)


def write_markdown(path, rows, columns=LEARNING):
    """Writes the rows as a Markdown table."""
    path, table = pathlib.Path(path), text_table(rows, columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(markdown(list(table), table.to_numpy().tolist()) + "\n")


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
    parser = new_parser("table", __doc__)
    add = parser.add_argument
    add("--logs", nargs="+", required=True, help="logs, directories of logs, race reports")
    add(
        "--reference",
        default="softmax",
        help="method or title of the log whose P@1 the times are to",
    )
    add("--columns", choices=_COLUMNS, default="learning")
    add("--markdown", help="file for the table")
    return parser
