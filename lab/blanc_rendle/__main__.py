"""`python -m lab.blanc_rendle`: all measurements of the note on Blanc & Rendle 2018.

The learning rate, by validation perplexity of the exact softmax; the bias at convergence, with
many draws, with twice the epochs, and with half the rate; the cost of a draw and what it is
worth; and what kernel trees learn in equal CPU time with the usual and the absolute softmax.
Results are in `benchmark-results/blanc_rendle/`.
"""

from lab.blanc_rendle import bias, draw_cost
from lab.kernel_trees import absolute, absolute_text, draw_worth

_OUT = "benchmark-results/blanc_rendle"
_FULL = ["--distributions", "full"]
_UNIFORM = ["--distributions", "uniform", "--num-sampled"]
SERIES = {
    "bias": ["--seeds", "0", "1", "2"],
    "many_draws": [*_UNIFORM, "2048", "4096"],
    "twice_the_epochs": [*_FULL, "--epochs", "20"],
}
_POOL_32 = ["kernel_tree_pool_32", "kernel_tree_pool_32_absolute"]
_OWN_32 = ["kernel_tree_32", "kernel_tree_32_absolute"]
_POOL = ["kernel_tree_pool", "kernel_tree_pool_absolute"]
_SHORT = ["--seconds", "25"]
ABSOLUTE = {
    "absolute_place_names": [*_SHORT, "--methods", "frequency", *_POOL_32, *_OWN_32],
    "absolute_linux_callees": ["--methods", *_POOL_32, *_POOL],
    "absolute_linux_callees_own": [*_SHORT, "--methods", *_OWN_32],
}


def main(of_bias=(), of_draw_cost=(), of_draw_worth=(), of_absolute=(), of_text=()):
    """Runs the programs, one after the other.

    Args:
        of_bias: added to the command lines of `bias`.
        of_draw_cost: added to that of `draw_cost`.
        of_draw_worth: added to that of `draw_worth`.
        of_absolute: added to those of `absolute`.
        of_text: added to that of `absolute_text`.
    """
    rates = [*_FULL, "--learning-rates", "5", "10", "20"]
    rate = bias.best_rate(bias.main([*rates, *_files("rates"), *of_bias])["runs"])
    for name, arguments in SERIES.items():
        own = [*arguments, "--learning-rates", str(rate)]
        bias.main([*own, *_files(name), *of_bias])
    half = [*_UNIFORM, "512", "--learning-rates", str(rate / 2)]
    bias.main([*half, *_files("lower_rate"), *of_bias])
    draw_cost.main(["--json", f"{_OUT}/draw_cost.json", *of_draw_cost])
    draw_worth.main(["--json", f"{_OUT}/draw_worth.json", *of_draw_worth])
    for name, arguments in ABSOLUTE.items():
        task = "place_names" if "place_names" in name else "linux_callees"
        own = ["--task", task, "--sample", "2000", *arguments, "--out", f"{_OUT}/{name}"]
        absolute.main([*own, "--json", f"{_OUT}/{name}.json", *of_absolute])
    own = ["--out", f"{_OUT}/runs", "--json", f"{_OUT}/absolute_gcide.json"]
    absolute_text.main([*own, *of_text])


def _files(name):
    """Returns the arguments of `bias` for a series. All series share one folder of runs."""
    files = ["--json", f"{_OUT}/{name}.json", "--png", f"{_OUT}/{name}.png"]
    return ["--out", f"{_OUT}/runs", *files]


if __name__ == "__main__":
    main()
