"""Pictures of the benchmarks' results."""

import itertools
import pathlib

import pandas as pd

_COLOURS = "#d1495b #edae49 #00798c #30638e #7d5ba6 #5c9e4a #8d6a4f #555555".split()
_LINES = [("-", "o"), ("--", "s"), (":", "^"), ("-.", "D")]  # with a marker each
_BELOW = {"loc": "outside lower center", "ncols": 3, "frameon": False}  # of a figure's legend
_UNDER = {"loc": "upper left", "bbox_to_anchor": (0, -0.14), "frameon": False}  # of axes
_AXES = {
    "num_classes": "number of classes",
    "dim": "width of the embeddings",
    "batch_size": "batch size",
    "num_sampled": "negatives per step",
}


def draw_race(logs, path, title):
    """Draws P@1 against seconds of training, one line per method.

    Args:
        logs: Dict of names and logs of `TrainingRun`s.
        path: Path of the PNG.
        title: Title of the picture.
    """
    figure, axes = new_figure([8.0, 4.8])
    styles = line_styles(len(logs))
    for style, log in zip(styles, logs.values(), strict=True):
        # models of other libraries have a single point, which gets no line from 0
        start = [(0.0, 0.0)] if len(log["points"]) > 1 else []
        points = start + [(point["seconds"], point["p1"]) for point in log["points"]]
        axes.plot(*zip(*points, strict=True), **style, label=log["title"])
    _label_ends(axes, list(logs.values()), styles)
    axes.set(xlabel="seconds of training", ylabel="P@1 on test, %", title=title)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.08)
    axes.legend(**_UNDER)
    save(figure, path)


def draw_comparison(logs, rows, path, title):
    """Draws P@1 against seconds of training on a logarithmic axis, and the last P@1 as bars.

    Args:
        logs: List of logs of `TrainingRun`s.
        rows: Rows of `table.comparison`, in the order of bars and legend.
        path: Path of the PNG.
        title: Title of the picture.
    """
    figure, (lines, bars) = new_figure([12.0, 2.6 + 0.26 * len(rows)], 2)
    by_title = {log["title"]: log["points"] for log in logs}
    styles = line_styles(len(rows))
    for place, (style, row) in enumerate(zip(styles, rows, strict=True)):
        points = by_title[row["title"]]
        seconds, precision = [p["seconds"] for p in points], [p["p1"] for p in points]
        lines.plot(seconds, precision, **style, label=row["title"])
        bars.barh(place, row["p1"], color=style["color"], height=0.7)
        bars.annotate(f" {row['p1']:.1f}", (row["p1"], place), va="center")
    lines.set(xscale="log", xlabel="seconds of training", ylabel="P@1 on test, %")
    lines.set_ylim(bottom=0)
    bars.set_yticks(range(len(rows)), [row["title"] for row in rows])
    bars.invert_yaxis()
    bars.margins(x=0.1)
    bars.set(xlabel="P@1 at the end, %")
    figure.suptitle(title)
    figure.legend(*lines.get_legend_handles_labels(), **_BELOW, handlelength=4)
    save(figure, path)


def draw_step(report, path):
    """Draws milliseconds per step, one panel per swept quantity, one line per variant."""
    rows = pd.DataFrame(row for row in report["rows"] if "error" not in row)
    swept = [name for name in _AXES if rows[name].nunique() > 1] or ["num_classes"]
    figure, panels = new_figure([4.2 * len(swept), 4.6], len(swept))
    base = rows[list(_AXES)].mode().iloc[0]
    variants = rows["variant"].unique()
    for axes, name in zip(panels if len(swept) > 1 else [panels], swept, strict=True):
        others = [other for other in _AXES if other != name]
        on_sweep = rows[(rows[others] == base[others]).all(axis=1)].sort_values(name)
        for style, variant in zip(line_styles(len(variants)), variants, strict=True):
            own = on_sweep[on_sweep["variant"] == variant]
            axes.plot(own[name], own["ms"], **style, label=variant)
        axes.set(xlabel=_AXES[name], xscale="log", yscale="log")
    first = panels[0] if len(swept) > 1 else panels
    first.set_ylabel("milliseconds per step")
    figure.legend(*first.get_legend_handles_labels(), **_BELOW)
    save(figure, path)


def draw_profile(report, parts, path):
    """Draws one horizontal bar per method, one colour per part of the step."""
    rows = pd.DataFrame({row["title"]: row["parts_ms"] for row in report["methods"].values()})
    figure, axes = new_figure([8.0, 1.6 + 0.6 * len(rows.columns)])
    rows.loc[list(parts)].T.clip(lower=0).plot.barh(
        stacked=True, ax=axes, color=_COLOURS, width=0.6, legend=False
    )
    axes.invert_yaxis()
    axes.set(xlabel="milliseconds per step", title=report["task"])
    figure.legend(**_BELOW)
    save(figure, path)


def draw_search(report, path, of_queries=False):
    """Draws recall against ms per batch or queries per second, one line per search."""
    figure, axes = new_figure([8.0, 4.8])
    searches = pd.DataFrame(report["rows"]).groupby("search", sort=False)
    x = "qps" if of_queries else "ms"
    for style, (search, rows) in zip(line_styles(len(searches)), searches, strict=True):
        rows = rows.sort_values([x, "recall"])
        axes.plot(rows[x], rows["recall"], **style, label=search)
    axes.set(
        xscale="log",
        xlabel=("queries per second in batches" if of_queries else "milliseconds per batch")
        + f" of {report['batch_size']}",
        ylabel=f"recall of the exact top {report['k']}",
        title=f"{report['num_classes']:,} classes of width {report['dim']}",
    )
    axes.set_ylim(0, 1.02)
    axes.legend(**_UNDER, ncols=1 + (len(searches) > 6))
    save(figure, path)


def line_styles(count):
    """Returns keyword arguments of `Axes.plot` for `count` lines of distinct styles."""
    kinds = itertools.product(_LINES, _COLOURS)
    return [
        {"color": colour, "linestyle": line, "marker": marker, "markersize": 4}
        for (line, marker), colour in itertools.islice(itertools.cycle(kinds), count)
    ]


def _label_ends(axes, logs, styles):
    """Writes the last value at the end of each line; labels do not overlap."""
    ends = [
        (log["points"][-1], style["color"]) for log, style in zip(logs, styles, strict=True)
    ]
    apart = 0.045 * max(1.0, axes.get_ylim()[1])
    height = -apart
    for point, colour in sorted(ends, key=lambda end: end[0]["p1"]):
        height = max(point["p1"], height + apart)
        place = (point["seconds"], height)
        axes.annotate(f"  {point['p1']:.1f}", place, color=colour, va="center")


def new_figure(size, columns=1):
    """Returns a figure of `size` inches and its axes, a list if `columns` is above 1."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, columns, figsize=size, layout="constrained")
    for panel in axes if columns > 1 else [axes]:
        panel.grid(alpha=0.3)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure, path):
    """Writes the figure to `path` and closes it."""
    from matplotlib import pyplot

    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, bbox_inches="tight")
    pyplot.close(figure)
