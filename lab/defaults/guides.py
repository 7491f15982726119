"""`python -m lab.defaults.guides`: P@1 of the first example of a guide, as it is and tuned.

Runs the first block of Python of each page, as it is and with other learning rates and numbers
of negatives, and evaluates the model exactly on the examples of the page. All runs of a page
have the same number of epochs. The tuned figure is the best one of the grid.
"""

import itertools
import pathlib
import re
import time

import keras

from benchmarks.harness import machine
from benchmarks.harness.files import markdown, write_json
from lab.shared.command_line import new_parser
from lab.shared.figures import mean_and_deviation
from tf_largeout import metrics

_FOLDER = pathlib.Path(__file__).parents[2] / "docs/guides"
# page -> the names of the model, its inputs and its labels
PAGES = {
    "getting_started": ("model", "x", "y"),
    "losses_and_metrics": ("sampled", "x", "y"),
    "saving": ("model", "x", "y"),
    "distribution": ("model", "x", "y"),
    "growing_classes": ("model", "centers[y]", "y"),
}
RATES = [3e-3, 1e-2, 3e-2, 1e-1]
SAMPLERS = ["tflo.samplers.UniformSampler(128)", "tflo.samplers.UniformSampler(500)"]
_RATE = re.compile(r"LazyAdam\(([0-9.e-]+)\)")
_SAMPLER = re.compile(r'"uniform"|tflo\.samplers\.UniformSampler\([^)]*\)')
_SEED = re.compile(r"set_random_seed\(\d+\)")


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    report = {"machine": machine.describe(), "runs": []}
    for page, seed in itertools.product(options.pages, options.seeds):
        for rate, sampler in [(None, None), *itertools.product(RATES, SAMPLERS)]:
            run = {"page": page, "seed": seed, "rate": rate, "sampler": sampler}
            run |= learned(page, seed, rate, sampler)
            print(run, flush=True)
            report["runs"].append(run)
            write_json(options.json, report)
    print(table(report["runs"]))
    return report


def learned(page, seed, rate=None, sampler=None):
    """Runs the first block of a page, and returns the exact P@1 of its model in per cent.

    Args:
        page: key of `PAGES`.
        seed: seed of weights and draws. The data of the page stay the same.
        rate: learning rate in place of that of the page, or None.
        sampler: sampler in place of that of the page, as Python, or None.
    """
    code = code_of(page, seed, rate, sampler)
    keras.utils.set_random_seed(seed)
    namespace, before = {"__name__": "__main__"}, time.process_time()
    exec(compile(code, page, "exec"), namespace)
    seconds = time.process_time() - before
    model, x, y = (eval(name, namespace) for name in PAGES[page])
    model.compile(loss=model.loss, metrics=[metrics.PrecisionAtK(1)])
    found = model.evaluate(x, y, batch_size=1024, verbose=0, return_dict=True)
    return {"p1": 100 * found["precision_at_1"], "cpu_seconds": seconds}


def code_of(page, seed, rate=None, sampler=None):
    """Returns the first block of Python of a page, with the settings of `learned`."""
    text = (_FOLDER / f"{page}.md").read_text()
    code = re.search(r"^```python\n(.*?)^```$", text, re.M | re.S).group(1)
    code = _SEED.sub(f"set_random_seed({seed})", code)
    if rate is not None:
        code = _RATE.sub(f"LazyAdam({rate})", code)
    return code if sampler is None else _SAMPLER.sub(sampler, code)


def table(runs):
    """Returns P@1 of each page, as it is and tuned, as Markdown: mean ± deviation."""
    rows = []
    for page in dict.fromkeys(run["page"] for run in runs):
        values = {}
        for run in runs:
            if run["page"] == page:
                values.setdefault((run["rate"], run["sampler"]), []).append(run["p1"])
        own = values.pop((None, None))
        (rate, sampler), best = max(values.items(), key=lambda item: sum(item[1]))
        share = sum(own) / max(sum(own), sum(best))
        setting = f"{rate:g}, {sampler.removeprefix('tflo.samplers.')}"
        cells = [page, mean_and_deviation(own), mean_and_deviation(best)]
        rows.append([*cells, setting, f"{share:.3f}"])
    return markdown(["page", "as it is", "tuned", "with", "share"], rows)


def _parser():
    parser = new_parser("defaults.guides", __doc__)
    add = parser.add_argument
    add("--pages", nargs="+", choices=PAGES, default=list(PAGES))
    add("--seeds", nargs="+", type=int, default=[0])
    add("--json", default="benchmark-results/guides.json", help="file of the figures")
    return parser


if __name__ == "__main__":
    main()
