"""`python -m tf_largeout.benchmarks perplexity`: a language model against the negatives it saw.

The experiment of Blanc and Rendle 2018, figure 2: an LSTM of width 200 learns the next word by
sampled softmax, each time from another sampler and number of negatives, for equally many steps;
then its exact perplexity is taken on the test split. Figures are written after each run, and
runs that a file has already are not made again.
"""

import argparse
import collections
import json
import pathlib
import time

import keras
import numpy as np
from tqdm import tqdm

from tf_largeout import datasets, losses, metrics, optimizers
from tf_largeout.benchmarks import machine
from tf_largeout.benchmarks.files import write_json
from tf_largeout.benchmarks.plots import draw_perplexity
from tf_largeout.layers import LargeOutput
from tf_largeout.samplers import (
    BigramSampler,
    InvertedFileSampler,
    KernelTreeSampler,
    SoftmaxSampler,
    UniformSampler,
    UnigramSampler,
)

WIDTH = 200


def _bigram(data, number):
    sampler = BigramSampler(number)
    sampler.adapt(data.train, data.num_classes)
    return sampler


def _quadratic(**options):
    return lambda data, number: KernelTreeSampler(number, shared=False, **options)


def _all_classes(distribution):
    return lambda data, number: SoftmaxSampler(number, distribution=distribution)


# name: (sampler of (data, number of negatives), loss)
VARIANTS = {
    "uniform": (lambda data, number: UniformSampler(number), losses.SampledSoftmaxLoss),
    "unigram": (
        lambda data, number: UnigramSampler(number, data.label_counts),
        losses.SampledSoftmaxLoss,
    ),
    "bigram": (_bigram, losses.SampledSoftmaxLoss),
    "quadratic": (_quadratic(), losses.SampledSoftmaxLoss),
    "quadratic, absolute softmax": (_quadratic(), losses.AbsoluteSoftmaxLoss),
    "quadratic, 32 dimensions": (_quadratic(projection_dim=32), losses.SampledSoftmaxLoss),
    "quartic": (_all_classes("quartic"), losses.SampledSoftmaxLoss),
    "softmax": (_all_classes("softmax"), losses.SampledSoftmaxLoss),
    "inverted file, draws": (
        lambda data, number: InvertedFileSampler(number, num_hard=None, select="draw"),
        losses.SampledSoftmaxLoss,
    ),
    "inverted file, 16 highest": (
        lambda data, number: InvertedFileSampler(number),
        losses.SampledSoftmaxLoss,
    ),
    "exact": (lambda data, number: None, losses.SoftmaxLoss),
}


def main(arguments=None):
    """Trains as the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    data = datasets.load(
        options.dataset, batch_size=options.batch_size, vocabulary_size=options.vocabulary
    )
    json_path = pathlib.Path(options.json)
    runs = json.loads(json_path.read_text())["runs"] if json_path.exists() else []
    done = {(run["variant"], run["num_sampled"], run["seed"]) for run in runs}
    wanted = [
        (variant, number, seed)
        for seed in options.seeds
        for variant in options.variants
        for number in ([0] if variant == "exact" else options.num_sampled)
    ]
    settings = {key: value for key, value in vars(options).items() if key != "json"}
    for variant, number, seed in tqdm([key for key in wanted if key not in done], unit="run"):
        figures = train(data, variant, number, seed, options)
        runs.append({"variant": variant, "num_sampled": number, "seed": seed, **figures})
        tqdm.write(_line(runs[-1]))
        report = {"machine": machine.describe(), **settings, "runs": runs}
        write_json(json_path, report)
    title = f"{options.dataset}, {data.num_classes:,} classes, {options.epochs:g} epochs"
    draw_perplexity(runs, options.png, title)
    print(table(runs), f"\nThe picture is {options.png}.", sep="\n")
    return {"runs": runs}


def train(data, variant, num_sampled, seed, options):
    """Trains one model: its figures on the test split, and what a step took."""
    keras.utils.set_random_seed(seed)
    make_sampler, make_loss = VARIANTS[variant]
    model = language_model(data.num_classes, make_sampler(data, num_sampled))
    steps = int(options.epochs * len(data.train))
    rate = keras.optimizers.schedules.PolynomialDecay(options.learning_rate, steps, 0.0)
    model.compile(
        optimizers.LazyAdam(rate, global_clipnorm=1.0),
        make_loss(),
        metrics=[metrics.Perplexity()],
    )
    batches = iter(data.train.repeat())
    model.train_on_batch(*next(batches))  # traces
    start = time.perf_counter()
    for _ in range(steps - 1):
        model.train_on_batch(*next(batches))
    seconds = time.perf_counter() - start
    test = model.evaluate(data.test, verbose=0, return_dict=True)
    return {
        "perplexity": float(np.exp(test["loss"])),  # of the loss's own distribution
        "softmax_perplexity": float(test["perplexity"]),
        "steps": steps,
        "ms": 1e3 * seconds / (steps - 1),
    }


def language_model(num_words, sampler):
    """The model, `[batch, length]` ids to logits `[batch, length, num_words]`."""
    return keras.Sequential(
        [
            keras.Input([None], dtype="int32"),
            keras.layers.Embedding(num_words, WIDTH),
            keras.layers.LSTM(WIDTH, return_sequences=True),
            keras.layers.Dropout(0.2),
            LargeOutput(num_words, sampler),
        ]
    )


def by_variant(runs):
    """Dict variant -> dict number of negatives -> its runs, both in rising order."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for run in sorted(runs, key=lambda run: run["num_sampled"]):
        found[run["variant"]][run["num_sampled"]].append(run)
    return found


def table(runs):
    """A line a variant and number of negatives: means and spreads over the seeds."""
    lines = [f"{'':32}{'negatives':>10}{'perplexity':>20}{'ms a step':>12}"]
    for variant, numbers in by_variant(runs).items():
        for number, same in numbers.items():
            values = [run["perplexity"] for run in same]
            spread = f"{np.mean(values):.1f} ±{np.ptp(values) / 2:.1f}"
            ms = np.mean([run["ms"] for run in same])
            lines.append(f"{variant:32}{number:10,}{spread:>20}{ms:12.1f}")
    return "\n".join(lines)


def _line(run):
    return (
        f"{run['variant']}, {run['num_sampled']:,} negatives: "
        f"perplexity {run['perplexity']:.1f}, {run['ms']:.1f} ms a step"
    )


def _parser():
    parser = argparse.ArgumentParser(
        "python -m tf_largeout.benchmarks perplexity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--dataset", default="brown", help="a text of `datasets.load`")
    add("--vocabulary", type=int, help="classes; by default the data set's")
    add("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    add("--num-sampled", type=int, nargs="+", default=[8, 32, 128, 1024])
    add("--epochs", type=float, default=2.0)
    add("--batch-size", type=int, default=32, help="sequences")
    add("--learning-rate", type=float, default=4e-3, help="falls to 0 along a line")
    add("--seeds", type=int, nargs="+", default=[1])
    add("--json", default="benchmark-results/perplexity.json", help="file for the figures")
    add("--png", default="benchmark-results/perplexity.png", help="file for the picture")
    return parser
