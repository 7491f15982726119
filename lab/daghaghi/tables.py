"""The runs of `lab.daghaghi.training` in the form of the paper's tables 2 to 7."""

import statistics

from benchmarks.harness.files import markdown
from lab.daghaghi.rows import ROWS
from lab.shared.figures import grid, mean_and_deviation

_SETTINGS = ("budget", "tables", "hashes")
_SHARES = (0.5, 0.9)  # of the P@1 of the full softmax


def all_tables(runs):
    """Returns all tables for which there are runs, as Markdown with a title each."""
    parts = ["Epochs to a share of the full softmax's P@1 (table 2)", convergence(runs)]
    parts += ["Time and precision (table 3)", costs(runs)]
    titles = {
        "budget": "P@1 by budget (table 4)",
        "tables": "P@1 by number of tables L (tables 5 and 6)",
        "hashes": "P@1 by number of hashes K (table 7)",
    }
    for name, title in titles.items():
        varied = along(runs, name)
        if len({run[name] for run in varied}) > 1:
            parts += [title, _by_setting(varied, name)]
    return "\n\n".join(parts)


def compared(runs):
    """Returns the runs with the settings of the comparison: the first ones of each method."""
    first = {}
    for run in runs:
        key = run["task"], run["method"]
        first.setdefault(key, [run[name] for name in _SETTINGS])
    return [
        run
        for run in runs
        if [run[name] for name in _SETTINGS] == first[run["task"], run["method"]]
    ]


def drawn(runs):
    """Returns the runs of the comparison, and those with other numbers of hashes K."""
    main = compared(runs)
    others = [run for run in along(runs, "hashes") if run not in main]
    return main + [{**run, "title": f"{run['title']}, K = {run['hashes']}"} for run in others]


def along(runs, name):
    """Returns the runs of methods of which several values of a setting were trained.

    The other settings are those of the comparison.
    """
    main = {(run["task"], run["method"]): run for run in reversed(compared(runs))}
    others = [other for other in _SETTINGS if other != name]
    found = [
        run
        for run in runs
        if all(run[other] == main[run["task"], run["method"]][other] for other in others)
    ]
    several = {
        run["method"] for run in found if run[name] != main[run["task"], run["method"]][name]
    }
    return [run for run in found if run["method"] in several]


def convergence(runs):
    """Returns the epochs to 50 and 90 % of the full softmax's final P@1, and P@1.

    P@1 is that at the end, and the highest one of all points with its epoch. P@1 at a point is
    the mean over the seeds. "fail": not reached; "": no full softmax.
    """
    head, rows = ["method"], {}
    for task, methods in _by_task(runs).items():
        head += [f"{task}: epochs to 50 %", "to 90 %", "P@1", "highest"]
        full = methods.get("softmax")
        for method in ROWS:
            cells = rows.setdefault(method, [])
            own = methods.get(method)
            cells += [""] * 4 if own is None else _convergence_cells(own, full)
    return markdown(head, [[ROWS[m], *cells] for m, cells in rows.items() if any(cells)])


def _convergence_cells(runs, full):
    final = mean_and_deviation([run["p1"] for run in runs])
    highest, at = max((p1, -epochs) for epochs, p1 in mean_curve(runs))
    ends = [final, f"{highest:.1f} at {-at:g}"]
    if full is None:
        return ["", "", *ends]
    best = statistics.mean(run["p1"] for run in full)
    epochs = [epochs_to(share * best, runs) for share in _SHARES]
    return ["fail" if epoch is None else f"{epoch:.2f}" for epoch in epochs] + ends


def epochs_to(p1, runs):
    """Returns the epochs at the first point with this mean P@1, or None if there is none."""
    return next((epochs for epochs, mean in mean_curve(runs) if mean >= p1), None)


def mean_curve(runs):
    """Returns the epochs and the mean P@1 of each point."""
    return [
        (points[0]["epochs"], statistics.mean(point["p1"] for point in points))
        for points in zip(*(run["curve"] for run in runs), strict=True)
    ]


def costs(runs):
    """Returns CPU seconds per epoch, their ratio to the full softmax's, and precisions."""
    head, rows = ["method"], {}
    for task, methods in _by_task(runs).items():
        head += [f"{task}: CPU s per epoch", "faster", "P@1", "P@3", "P@5"]
        full = _seconds(methods["softmax"]) if "softmax" in methods else None
        for method in ROWS:
            cells = rows.setdefault(method, [])
            own = methods.get(method)
            if own is None:
                cells += [""] * 5
                continue
            ratio = f"{full / _seconds(own):.1f}x" if full else ""
            cells += [f"{_seconds(own):.1f}", ratio]
            cells += [mean_and_deviation([r[name] for r in own]) for name in ("p1", "p3", "p5")]
    return markdown(head, [[ROWS[m], *cells] for m, cells in rows.items() if any(cells)])


def _seconds(runs):
    return statistics.mean(run["epoch_seconds"] for run in runs)


def _by_task(runs):
    """Returns the runs of the comparison as a dict of tasks and of methods."""
    result = {}
    for run in compared(runs):
        result.setdefault(run["task"], {}).setdefault(run["method"], []).append(run)
    return result


def _by_setting(runs, name):
    """Returns P@1 and, below it, CPU seconds per epoch, one column per value of the setting."""
    rows = [{**run, "row": f"{run['task']}, {run['title']}"} for run in runs]
    titles = {value: f"{value:g}" for value in sorted({run[name] for run in runs})}
    return "\n\n".join(
        grid(rows, corner, "row", name, titles, figure)
        for corner, figure in (("P@1", "p1"), ("CPU s per epoch", "epoch_seconds"))
    )
