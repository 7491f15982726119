"""Picture of `lab.daghaghi.training`, as figures 4 and 5 of the paper."""

from tf_largeout.benchmarks.harness.plots import line_styles, new_figure, save


def draw_task(runs, path):
    """Draws the label distribution, and P@1 against CPU seconds and against steps.

    Args:
        runs: runs of one task, one line each.
        path: Path of the PNG.
    """
    figure, (labels, by_time, by_steps) = new_figure([13.0, 5.0], 3)
    labels.plot(*zip(*runs[0]["label_counts"], strict=True), color="#00798c", marker="o")
    labels.set(xscale="log", yscale="symlog", xlabel="class, by falling frequency")
    labels.set(ylabel="training examples", title="label distribution")
    for axes, x, title in (
        (by_time, "cpu_seconds", "CPU seconds of training, one thread"),
        (by_steps, "steps", "steps of training"),
    ):
        for style, run in zip(line_styles(len(runs)), runs, strict=True):
            points = [(point[x], point["p1"]) for point in run["curve"]]
            axes.plot(*zip(*points, strict=True), **style, label=run["title"].strip("`"))
        axes.set(xlabel=title, ylabel="P@1 on test, %")
        axes.set_ylim(bottom=0)
    by_time.set_xscale("log")
    figure.legend(*by_time.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.suptitle(f"{runs[0]['task']}: {runs[0]['num_classes']:,} classes")
    save(figure, path)
