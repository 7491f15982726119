"""Picture of `lab.blanc_rendle.bias`."""

import collections

from benchmarks.harness.plots import line_styles, new_figure, save

_MOST = 1.5  # perplexity at the top of the picture, relative to the lowest one
_LABELLED = 1.05  # relative perplexity from which a curve shows its number of draws


def draw_bias(runs, path):
    """Draws test perplexity by number of draws, and validation perplexity by epoch.

    Perplexities far above the lowest one are outside the picture.

    Args:
        runs: Dicts as `bias.train` returns them; those of several seeds are averaged.
        path: Path of the PNG.
    """
    figure, (by_number, by_epoch) = new_figure([12.0, 4.8], 2)
    lowest = min(run["validation_perplexity"][-1] for run in runs)
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in runs:
        groups[run["title"]][run["num_sampled"]].append(run)
    for style, (title, of_counts) in zip(line_styles(len(groups)), groups.items(), strict=True):
        points = [(count, _mean(own)) for count, own in sorted(of_counts.items())]
        if title.startswith("full"):
            line = {key: style[key] for key in ("color", "linestyle")}
            by_number.axhline(points[0][1], label=title, **line)
        else:
            by_number.plot(*zip(*points, strict=True), label=title, **style)
        for count, own in sorted(of_counts.items()):
            curves = zip(*(run["validation_perplexity"] for run in own), strict=True)
            means = [sum(values) / len(values) for values in curves]
            epochs = [own[0]["epochs"] * (n + 1) / len(means) for n in range(len(means))]
            by_epoch.plot(epochs, means, **style)
            if not title.startswith("full") and means[-1] > _LABELLED * lowest:
                at = (epochs[-1], means[-1])
                by_epoch.annotate(f" {count:,}", at, va="center", annotation_clip=True)
    _limit(by_number, min(run["test_perplexity"] for run in runs))
    _limit(by_epoch, lowest)
    by_number.set(xscale="log", xlabel="draws per position")
    by_number.set(ylabel="perplexity on test, over all words", title="at the end")
    by_epoch.set(xlabel="epochs", ylabel="perplexity on validation")
    by_epoch.set_title("by epoch and number of draws")
    handles, labels = by_number.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    save(figure, path)


def _limit(axes, lowest):
    axes.set_ylim(0.95 * lowest, _MOST * lowest)


def _mean(runs):
    return sum(run["test_perplexity"] for run in runs) / len(runs)
