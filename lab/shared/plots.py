"""Pictures of the results of the lab's programs."""

import collections

from benchmarks.harness.plots import line_styles, new_figure, save


def draw_factored(report, path):
    """Draws processor time of a step against the number of classes, one line per method."""
    rows = [row for row in report["rows"] if "error" not in row and not row.get("context")]
    figure, axes = new_figure([8.0, 5.2])
    methods = list(dict.fromkeys(row["method"] for row in rows))
    for style, method in zip(line_styles(len(methods)), methods, strict=True):
        own = [row for row in rows if row["method"] == method]
        points = [(row["num_classes"], row["cpu_ms"]) for row in own]
        axes.plot(*zip(*sorted(points), strict=True), **style, label=method)
    axes.set(xscale="log", yscale="log")
    axes.set(xlabel="classes", ylabel="processor milliseconds per step")
    axes.set_title(f"output layer of width {report['dim']}, batches of {report['batch_size']}")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.14), frameon=False)
    save(figure, path)


def draw_hardness(report, figures, path):
    """Draws one panel per figure, one line per sampler, against seconds of training."""
    points = report["points"]
    seconds = [point["seconds"] for point in points]
    canvas, panels = new_figure([4.2 * len(figures), 4.2], len(figures))
    for axes, figure in zip(panels, figures, strict=True):
        samplers = points[0]["samplers"]
        for style, name in zip(line_styles(len(samplers)), samplers, strict=True):
            values = [point["samplers"][name][figure] for point in points]
            axes.plot(seconds, values, **style, label=name)
        axes.set(xlabel="seconds of training", title=figure)
        if figure in ("median rank", "gradient bias"):
            axes.set_yscale("symlog", linthresh=1e-2)
        elif figure in ("partition error", "effective sample", "gradient error"):
            axes.set_yscale("log")
    handles, labels = panels[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    save(canvas, path)


def draw_likelihood(runs, titles, path, title, points_per_epoch=1):
    """Draws one panel per figure, one line per method, means over the seeds against epochs."""
    figures = list(runs[0]["points"][0])
    canvas, panels = new_figure([5.2 * len(figures), 4.6], len(figures))
    names = list(dict.fromkeys(run["estimator"] for run in runs))
    for axes, figure in zip(panels, figures, strict=True):
        for style, name in zip(line_styles(len(names)), names, strict=True):
            mine = [run["points"] for run in runs if run["estimator"] == name]
            values = [
                sum(points[number][figure] for points in mine) / len(mine)
                for number in range(len(mine[0]))
            ]
            epochs = [(number + 1) / points_per_epoch for number in range(len(values))]
            axes.plot(epochs, values, **style, label=titles[name])
        axes.set(xlabel="epochs", title=figure.replace("_", " "))
        if figure != "log_likelihood":
            axes.set_yscale("log")
    handles, labels = panels[0].get_legend_handles_labels()
    canvas.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    canvas.suptitle(title)
    save(canvas, path)


def draw_perplexity(runs, path):
    """Draws mean test perplexity over seeds against negatives per step, one line per sampler.

    Args:
        runs: Dicts with `title`, `num_sampled` (None is drawn as a dashed line) and
            `test_perplexity`. Runs without `test_perplexity` are left out.
        path: Path of the PNG.
    """
    figure, axes = new_figure([8.0, 4.8])
    figures = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in runs:
        if "test_perplexity" in run:
            figures[run["title"]][run["num_sampled"]].append(run["test_perplexity"])
    for style, (title, points) in zip(line_styles(len(figures)), figures.items(), strict=True):
        means = {count: sum(values) / len(values) for count, values in points.items()}
        if None in means:
            style = {"color": "#888888", "linestyle": "--"}
            axes.axhline(means[None], label=title, **style)
        else:
            axes.plot(*zip(*sorted(means.items()), strict=True), label=title, **style)
    axes.set(xscale="log", yscale="log", ylabel="perplexity on test, over all words")
    axes.set(xlabel="negatives per step", title=runs[0]["dataset"])
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.14), ncols=3, frameon=False)
    save(figure, path)


def draw_growth(report, path):
    """Draws P@1 against steps, one line per run, for all examples and for new classes."""
    figure, panels = new_figure([11.0, 4.8], 2)
    titles = {"p1": "all examples", "p1_new": "examples of added classes"}
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        for style, run in zip(line_styles(len(report["runs"])), report["runs"], strict=True):
            steps = [point["steps"] for point in run["points"]]
            axes.plot(
                steps, [point[name] for point in run["points"]], **style, label=run["title"]
            )
        axes.axvline(report["steps"], color="#888888", linestyle="--", linewidth=1)
        axes.set(xlabel="steps of training", ylabel="P@1 on test, %", title=title)
        axes.set_ylim(bottom=0)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    came = report["num_classes"] - report["first_classes"]
    figure.suptitle(f"{report['task']}: {came:,} classes added to {report['first_classes']:,}")
    save(figure, path)
