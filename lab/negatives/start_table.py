"""`python -m lab.negatives.start_table FILES`: P@1 by the start, from `start_rules`.

Prints one line per problem and length of the runs, means over the seeds. A run that was added
later, with another length of a kept seed, is a run of its own in the file. With `--png`, draws
the effective sample size of the tail during training, and what each start loses against the
best fixed one.
"""

import collections
import json
import pathlib
import statistics

from benchmarks.harness.files import markdown
from benchmarks.harness.plots import line_styles, new_figure, save
from lab.shared.command_line import new_parser
from lab.shared.figures import mean_and_deviation

NEVER, DEFAULT = "never", "by labels"
RULES = {"by_labels": DEFAULT, "by_size": "by sample size"}
FIXED = ["300", "1000"]
COLUMNS = [NEVER, *FIXED, *RULES.values()]


def main(arguments=None):
    """Runs what the command line says."""
    parser = new_parser("negatives.start_table", __doc__)
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    parser.add_argument("--png", help="file for the picture")
    options = parser.parse_args(arguments)
    runs = [run for file in options.files for run in json.loads(file.read_text())["runs"]]
    print(table(runs))
    if options.png:
        draw(runs, options.png)


def figures(run, units):
    """Returns `{start: P@1}` of a seed, with the starts by rules under their names.

    The P@1 of a rule is that of the nearest measured start, if that is at most a third away. A
    start after the learning rate has begun to fall counts as no search.
    """
    of_step = {one["start"]: one["p1"] for one in run["runs"] if one["units"] == units}
    rules = {name: run[key] for key, name in RULES.items()}
    found = {str(step) if step else NEVER: p1 for step, p1 in of_step.items()}
    for name, step in {**{name: int(name) for name in FIXED}, **rules}.items():
        near = [s for s in of_step if s and abs(s - step) <= s / 3]
        if near:
            found[name] = of_step[min(near, key=lambda s: abs(s - step))]
        elif step >= 0.75 * units:
            found[name] = found[NEVER]
    return found


def table(runs):
    """Returns means and deviations of P@1 as Markdown: one line per problem and length."""
    rows = []
    for problem, units, of_seeds in grouped(runs):
        cells = [mean_and_deviation(of_start(of_seeds, name)) for name in COLUMNS]
        loss = less_the_best(of_seeds, DEFAULT)
        about = [problem, f"{units:,}", f"{cpu_seconds(runs, problem, units):.0f}"]
        rows.append([*about, str(len(of_seeds)), *cells, f"{loss:+.1f}"])
    last = f"{DEFAULT} minus best start"
    return markdown(["problem", "length", "CPU s", "seeds", *COLUMNS, last], rows)


def cpu_seconds(runs, problem, units):
    """CPU seconds of so many steps without a search: the median over the runs of a problem."""
    costs = [run["costs"]["plain"] for run in runs if run["problem"] == problem]
    return units * statistics.median(costs)


def of_start(of_seeds, name):
    """Returns P@1 of the seeds that measured a start."""
    return [found[name] for found in of_seeds if name in found]


def less_the_best(of_seeds, name):
    """Returns P@1 of a start less that of the best, over the seeds that measured the start.

    The best is the start with the highest mean among those that all seeds measured.
    """
    names = sorted(set.intersection(*(set(found) for found in of_seeds)))
    best = max(names, key=lambda one: statistics.mean(of_start(of_seeds, one)))
    return statistics.mean(found[name] - found[best] for found in of_seeds if name in found)


def grouped(runs):
    """Yields (problem, length, figures of each seed), in alphabetical order."""
    found = collections.defaultdict(list)
    for run in runs:
        for units in sorted({one["units"] for one in run["runs"]}):
            found[run["problem"], units].append(figures(run, units))
    for (problem, units), of_seeds in sorted(found.items()):
        yield problem, units, of_seeds


def draw(runs, path):
    """Draws two panels: the tail's size by step, and P@1 less that of the best start."""
    canvas, (left, right) = new_figure([11.0, 4.8], 2)
    problems = sorted({run["problem"] for run in runs})
    for style, problem in zip(line_styles(len(problems)), problems, strict=True):
        run = next(run for run in runs if run["problem"] == problem)
        looks = [(look["step"], look["size"]) for look in run["looks"]]
        left.plot(*zip(*looks, strict=True), **{**style, "marker": ""}, label=problem)
    left.axhline(16, color="#888888", linewidth=1)
    left.set(xlabel="training step", yscale="log", title="effective sample size of the tail")
    rows = list(grouped(runs))
    styles = line_styles(len(COLUMNS))
    for number, (style, name) in enumerate(zip(styles, COLUMNS, strict=True)):
        points = [
            (less_the_best(of_seeds, name), place + 0.13 * number)
            for place, (_, _, of_seeds) in enumerate(rows)
            if of_start(of_seeds, name)
        ]
        right.plot(*zip(*points, strict=True), **{**style, "linestyle": ""}, label=name)
    places = [place + 0.26 for place in range(len(rows))]
    right.set_yticks(places, [f"{name}, {units:,}" for name, units, _ in rows])
    right.set(xlabel="P@1 less that of the best start", title="start of the search")
    left.legend(frameon=False)
    right.legend(frameon=False)
    save(canvas, path)


if __name__ == "__main__":
    main()
