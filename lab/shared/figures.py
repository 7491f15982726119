"""Figures of several runs as text."""

import statistics

from benchmarks.harness.files import markdown


def mean_and_deviation(values, digits=1):
    """Returns "mean ± standard deviation"; a single value alone; "" without values."""
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):,.{digits}f}{spread}" if values else ""


def grid(runs, corner, row, column, titles, figure="p1"):
    """Returns a figure as Markdown: a line per value of `row`, a column per value of `column`.

    Args:
        runs: dicts; several in a cell are shown as mean ± standard deviation. A run whose
            `column` is None is in all columns.
        corner: title of the first column.
        row: key of the runs.
        column: key of the runs.
        titles: dict of the values of `column` and the titles of their columns.
        figure: key of the runs.
    """
    rows = []
    for name in dict.fromkeys(run[row] for run in runs):
        own = [run for run in runs if run[row] == name]
        cells = ([run[figure] for run in own if run[column] in (at, None)] for at in titles)
        rows.append([str(name), *map(mean_and_deviation, cells)])
    return markdown([corner, *titles.values()], rows)
