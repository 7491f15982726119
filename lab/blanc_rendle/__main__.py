"""`python -m lab.blanc_rendle`: all measurements of the note on Blanc & Rendle 2018.

The learning rate, by validation perplexity of the exact softmax; the bias at convergence, with
many draws, with twice the epochs, and with half the rate; the cost of a draw and what it is
worth; and what kernel trees learn in equal CPU time with the usual and the absolute softmax.
Results are in `benchmark-results/`.
"""

from lab.blanc_rendle import bias, draw_cost
from lab.kernel_trees import absolute, draw_worth
from lab.shared import language_model

_OUT = "benchmark-results/blanc_rendle"
_FULL = ["--distributions", "full"]
SERIES = {
    "bias": ["--seeds", "0", "1", "2"],
    "many_draws": ["--distributions", "uniform", "--num-sampled", "2048"],
    "twice_the_epochs": [*_FULL, "--epochs", "20"],
}
_TEXT = ["--dataset", "gcide", "--by-cpu", "--seconds", "25", "--sample", "64", "--width", "64"]
_TEXT += ["--batch-size", "16", "--length", "32", "--out", f"{_OUT}/gcide"]


def main():
    """Runs the programs, one after the other."""
    rates = [*_FULL, "--learning-rates", "5", "10", "20"]
    rate = bias.best_rate(bias.main([*rates, *_files("rates")])["runs"])
    for name, arguments in SERIES.items():
        bias.main([*arguments, "--learning-rates", str(rate), *_files(name)])
    half = ["--learning-rates", str(rate / 2), *_files("lower_rate")]
    bias.main(["--distributions", "uniform", "--num-sampled", "512", *half])
    draw_cost.main(["--json", f"{_OUT}/draw_cost.json"])
    draw_worth.main(["--json", f"{_OUT}/draw_worth.json"])
    for task in ("place_names", "linux_callees"):
        absolute.main(["--task", task, "--json", f"{_OUT}/absolute_{task}.json"])
    for kind in (["--absolute"], []):
        for sampler, number in {"kernel_tree": "32", "kernel_tree_pool": "1024"}.items():
            own = ["--samplers", sampler, "--num-sampled", number]
            language_model.main([*_TEXT, *own, *kind])


def _files(name):
    """Returns the arguments of `bias` for a series. All series share one folder of runs."""
    files = ["--json", f"{_OUT}/{name}.json", "--png", f"{_OUT}/{name}.png"]
    return ["--out", f"{_OUT}/runs", *files]


if __name__ == "__main__":
    main()
