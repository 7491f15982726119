"""Picture of `lab.daghaghi.training`, as figures 4 and 5 of the paper."""

import numpy as np

from benchmarks.harness.plots import line_styles, new_figure, save


def draw_task(runs, path):
    """Draws the label distribution, and P@1 against CPU seconds and against steps.

    Args:
        runs: runs of one task, one line per method: means over the seeds.
        path: Path of the PNG.
    """
    figure, (labels, by_time, by_steps) = new_figure([13.0, 5.0], 3)
    labels.plot(*zip(*runs[0]["label_counts"], strict=True), color="#00798c", marker="o")
    labels.set(xscale="log", yscale="log", xlabel="class, by falling frequency")
    labels.set(ylabel="training examples", title="label distribution")
    labels.set_ylim(bottom=1)
    methods = dict.fromkeys(run["title"] for run in runs)
    for axes, x, title in (
        (by_time, "cpu_seconds", "CPU seconds of training, one thread"),
        (by_steps, "steps", "steps of training"),
    ):
        for style, method in zip(line_styles(len(methods)), methods, strict=True):
            curves = [run["curve"] for run in runs if run["title"] == method]
            means = [
                [
                    np.mean([point[of] for point in points])
                    for points in zip(*curves, strict=True)
                ]
                for of in (x, "p1")
            ]
            axes.plot(*means, **style, label=method.strip("`"))
        axes.set(xlabel=title, ylabel="P@1 on test, %")
        axes.set_ylim(bottom=0)
    by_time.set_xscale("log")
    figure.legend(*by_time.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.suptitle(f"{runs[0]['task']}: {runs[0]['num_classes']:,} classes")
    save(figure, path)


def draw_costs(rows, path):
    """Draws the CPU time of a step and of a rebuild against the number of classes.

    Args:
        rows: dicts of `step_costs`.
        path: Path of the PNG.
    """
    figure, panels = new_figure([12.0, 4.8], 2)
    forms = list(dict.fromkeys(row["form"] for row in rows))
    for axes, key, title in zip(
        panels,
        ("cpu_ms", "rebuild_cpu_ms"),
        ("a training step", "a rebuild of the hash tables"),
        strict=True,
    ):
        for style, form in zip(line_styles(len(forms)), forms, strict=True):
            own = [row for row in rows if row["form"] == form and key in row]
            if own:
                points = [(row["num_classes"], row[key]) for row in own]
                axes.plot(*zip(*points, strict=True), **style, label=form)
        axes.set(xscale="log", yscale="log", xlabel="classes", ylabel="CPU milliseconds")
        axes.set_title(title)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    save(figure, path)
