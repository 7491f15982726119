"""Picture of `lab.vijayanarasimhan.inference`."""

from benchmarks.harness.plots import line_styles, new_figure, save


def draw_inference(report, path):
    """Draws recall against milliseconds per query, one line per K, one point per M.

    Args:
        report: The report of `inference`.
        path: Path of the PNG.
    """
    figure, axes = new_figure([8.0, 5.2])
    hashed = [row for row in report["rows"] if "tables" in row]
    lines = dict.fromkeys((row["search"], row["candidates"]) for row in hashed)
    for style, (search, candidates) in zip(line_styles(len(lines)), lines, strict=True):
        own = [r for r in hashed if (r["search"], r["candidates"]) == (search, candidates)]
        points = [(row["cpu_ms"], row["recall"]) for row in own]
        axes.plot(*zip(*points, strict=True), **style, label=f"{search}, K = {candidates:,}")
        for row in own:
            axes.annotate(f" {row['tables']:,}", (row["cpu_ms"], row["recall"]), fontsize=8)
    for row in report["rows"]:
        if "tables" not in row:
            axes.plot(row["cpu_ms"], row["recall"], "k*")
            axes.annotate(f" {row['search']}", (row["cpu_ms"], row["recall"]), fontsize=8)
    axes.set(xscale="log", xlabel="processor milliseconds per query, one query at a time")
    axes.set(ylabel="share of the exact best 10 found")
    axes.set_title(f"{report['task']}, {report['num_classes']:,} classes; M at the points")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.14), ncols=2, frameon=False)
    save(figure, path)
