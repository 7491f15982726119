"""`python -m lab.shared.language_model`: perplexity by sampler and number of negatives.

The experiment of Blanc & Rendle 2018, "Adaptive sampled softmax with kernel based sampling",
figure 2. An LSTM learns the next word of a text with a sampled softmax, once for each sampler,
number of negatives and seed. It is evaluated by perplexity and precision over all words. Two
kinds of method have no negatives: `full`, the exact softmax, and the losses of a
`FactoredOutput`, two of which have no perplexity. Each run has its own process. Its figures are
kept in `--out`, so an interrupted series can be continued.
"""

import dataclasses

from benchmarks.methods.optimizers import OPTIMIZERS
from lab.shared.command_line import new_parser
from lab.shared.figures import grid
from lab.shared.kept_runs import KeptRuns
from lab.shared.language_model_case import WITHOUT_NEGATIVES, Setting, train
from lab.shared.plots import draw_perplexity
from lab.shared.samplers import SAMPLERS


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    file = options.json or f"{options.out}/language_model.json"
    kept = KeptRuns(options.out, file, _line)
    for setting in settings(options):
        kept.add(dataclasses.asdict(setting).values(), {}, train, setting)
        draw_perplexity(kept.runs, options.png or f"{options.out}/language_model.png")
    for figure in ("test_perplexity", "test_p1", "test_top10"):
        print(figure, table(kept.runs, figure), "", sep="\n", flush=True)
    return kept.report


def settings(options):
    """Yields the `Setting` of each run that the parsed command line asks for."""
    names = {field.name for field in dataclasses.fields(Setting)}
    common = {name: value for name, value in vars(options).items() if name in names}
    for seed in options.seeds:
        for sampler in options.samplers:
            for count in [None] if sampler in WITHOUT_NEGATIVES else options.num_sampled:
                own = {"sampler": sampler, "num_sampled": count, "seed": seed}
                yield Setting(**{**common, **own})


def table(runs, figure="test_perplexity"):
    """Returns a figure as Markdown: samplers as lines, numbers of negatives as columns.

    With several seeds, mean ± standard deviation. Precisions are in per cent.
    """
    runs = [run for run in runs if figure in run]
    counts = sorted({run["num_sampled"] for run in runs if run["num_sampled"]})
    titles = {count: f"{count:,}" for count in counts} or {None: ""}
    return grid(runs, "sampler", "title", "num_sampled", titles, figure)


def _line(run):
    parts = []
    for split in ("validation", "test"):
        perplexity = run.get(f"{split}_perplexity")
        parts += [f"perplexity {perplexity:.1f}," if perplexity else "no perplexity,"]
        parts += [f"P@1 {run[f'{split}_p1']:.1f} on {split},"]
    return " ".join([*parts, f"{run['training_seconds']:.0f} s"])


def _parser():
    parser = new_parser("shared.language_model", __doc__)
    add, usual = parser.add_argument, Setting()
    add("--dataset", default=usual.dataset)
    add("--vocabulary", type=int, help="classes (default: the data set's own number)")
    samplers = [*WITHOUT_NEGATIVES, *SAMPLERS]
    add("--samplers", nargs="+", choices=samplers, default=["uniform", "frequency"])
    add("--num-sampled", nargs="+", type=int, default=[8, 32, 128, 512, 1024, 4096])
    add("--seeds", nargs="+", type=int, default=[0])
    add("--epochs", type=float, default=usual.epochs, help="2, or .1 for a tenth of one")
    add("--seconds", type=float, help="of training, in place of epochs")
    add("--by-cpu", action="store_true", help="the seconds are CPU seconds")
    add("--learning-rate", type=float, default=usual.learning_rate)
    add("--class-rate", type=float, help="of a FactoredOutput (default: each loss's own)")
    add("--optimizer", choices=OPTIMIZERS, default=usual.optimizer)
    add("--width", type=int, default=usual.width, help="of the embeddings and the LSTM")
    add("--dropout", type=float, default=usual.dropout)
    add("--batch-size", type=int, default=usual.batch_size, help="windows per step")
    add("--length", type=int, default=usual.length, help="words of a window")
    add("--tied", action="store_true", help="one table for input and output")
    add("--absolute", action="store_true", help="the softmax of |logit|")
    add("--sample", type=int, help="windows that a perplexity is of (default: all)")
    dtypes = ["float32", "bfloat16"]
    add("--compute-dtype", choices=dtypes, default=dtypes[0], help="of `full` in training")
    add("--out", default="benchmark-results/language_model", help="directory of the figures")
    add("--json", help="file for the figures of all runs")
    add("--png", help="file for the picture")
    return parser


if __name__ == "__main__":
    main()
