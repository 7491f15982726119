"""`python -m tf_largeout.benchmarks language_model`: exact perplexity against negatives a step.

The experiment of Blanc & Rendle 2018, "Adaptive sampled softmax with kernel based sampling",
figure 2: an LSTM learns the next word of a text by sampled softmax, once for each sampler,
number of negatives and seed, and is judged by its perplexity over all words. `full` is the
exact softmax, which has no negatives. Each run has a process of its own, and its figures are
kept in `--out`: a series that was cut off goes on from there.
"""

import argparse
import dataclasses
import json
import math
import multiprocessing
import pathlib
import statistics
import time

import keras
import numpy as np

from tf_largeout import datasets, layers, losses, metrics
from tf_largeout.benchmarks import machine
from tf_largeout.benchmarks.files import write_json
from tf_largeout.benchmarks.optimizers import OPTIMIZERS
from tf_largeout.benchmarks.plots import draw_perplexity
from tf_largeout.benchmarks.samplers import SAMPLERS
from tf_largeout.benchmarks.training_clock import ENDLESS, TrainingClock

FULL = "full"
_VALIDATION_FRACTION = 0.05


@dataclasses.dataclass(frozen=True)
class Setting:
    """What a run trains; all of it names the file of the run.

    Attributes:
        dataset: a text of `datasets.load`.
        vocabulary: its classes; None for the data set's own number.
        sampler: key of `SAMPLERS`, or `FULL` for the exact softmax.
        num_sampled: negatives; None with `FULL`.
        seed: of weights, draws and order.
        epochs: of training, if `seconds` is None; a part of one is a number of steps.
        seconds: of training.
        learning_rate: at the start; it falls to zero in a line.
        optimizer: key of `OPTIMIZERS`.
        width: of the embeddings and the LSTM.
        dropout: share of the LSTM's outputs that a step leaves out.
        batch_size: windows of a step.
        length: words of a window.
        tied: whether input and output share a table.
        absolute: whether the words' probabilities are the softmax of `|logit|`, the quadratic
            kernel's partner.
        sample: windows of a split that its perplexity is of; None for all.
    """

    dataset: str = "brown"
    vocabulary: int | None = None
    sampler: str = "uniform"
    num_sampled: int | None = None
    seed: int = 0
    epochs: float = 3
    seconds: float | None = None
    learning_rate: float = 4e-3
    optimizer: str = "lazy_adam"
    width: int = 200
    dropout: float = 0.2
    batch_size: int = 32
    length: int = 64
    tied: bool = False
    absolute: bool = False
    sample: int | None = None

    @property
    def title(self):
        return f"{self.sampler}, absolute softmax" if self.absolute else self.sampler


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    out = pathlib.Path(options.out)
    report = {"machine": machine.describe(), "runs": []}
    for setting in settings(options):
        report["runs"].append(_kept(setting, out))
        write_json(options.json or out / "language_model.json", report)
        draw_perplexity(report["runs"], options.png or out / "language_model.png")
    print(table(report["runs"]), flush=True)
    return report


def settings(options):
    """The `Setting` of each run that the parsed command line asks for."""
    names = {field.name for field in dataclasses.fields(Setting)}
    common = {name: value for name, value in vars(options).items() if name in names}
    for seed in options.seeds:
        for sampler in options.samplers:
            for count in [None] if sampler == FULL else options.num_sampled:
                own = {"sampler": sampler, "num_sampled": count, "seed": seed}
                yield Setting(**{**common, **own})


def load(setting):
    """The text of a setting, with a validation split."""
    return datasets.load(
        setting.dataset,
        batch_size=setting.batch_size,
        shuffle_seed=setting.seed,
        validation_fraction=_VALIDATION_FRACTION,
        vocabulary_size=setting.vocabulary,
        sequence_length=setting.length,
    )


def build_model(data, setting):
    """The compiled model of a setting: ids `[batch, time]` to logits over all words."""
    sampler = None
    if setting.sampler != FULL:
        sampler = SAMPLERS[setting.sampler](data, setting.num_sampled)
    words = keras.layers.Embedding(data.num_classes, setting.width)
    model = keras.Sequential(
        [
            keras.Input([None], dtype="int32"),
            words,
            keras.layers.LSTM(setting.width, return_sequences=True),
            keras.layers.Dropout(setting.dropout),
            layers.LargeOutput(
                data.num_classes, sampler=sampler, embeddings=words if setting.tied else None
            ),
        ]
    )
    optimizer = OPTIMIZERS[setting.optimizer](_rate(data, setting))
    optimizer.global_clipnorm = 1.0
    model.compile(
        optimizer=optimizer,
        loss=_loss(sampler, setting.absolute),
        metrics=[metrics.Perplexity(setting.absolute, name="perplexity")],
    )
    return model


def _loss(sampler, absolute):
    if absolute:
        return losses.AbsoluteSoftmaxLoss()
    return losses.SampledSoftmaxLoss() if sampler else losses.SoftmaxLoss()


def train(setting):
    """Trains one model and returns its exact perplexities and what training cost."""
    keras.utils.set_random_seed(setting.seed)
    data = load(setting)
    model = build_model(data, setting)
    steps, callbacks = _num_steps(data, setting), []
    if setting.seconds is not None:
        clock = TrainingClock(setting.seconds, setting.seconds, _no_figures, anneal=1.0)
        steps, callbacks = ENDLESS, [clock]
    endless = data.train.repeat()
    started = time.perf_counter()
    model.fit(endless, steps_per_epoch=steps, callbacks=callbacks, shuffle=False, verbose=0)
    seconds = time.perf_counter() - started
    return {
        **dataclasses.asdict(setting),
        "title": setting.title,
        "num_classes": data.num_classes,
        "steps": int(model.optimizer.iterations),
        "training_seconds": seconds,
        "validation_perplexity": _perplexity(model, data.validation, setting),
        "test_perplexity": _perplexity(model, data.test, setting),
        "unigram_test_perplexity": unigram_perplexity(data),
    }


def unigram_perplexity(data):
    """Test perplexity of the words' frequencies in training, one added to each count."""
    counts = data.label_counts + 1.0
    log_probabilities = np.log(counts / counts.sum())
    return math.exp(-log_probabilities[data.test_tokens[1:]].mean())


def table(runs, figure="test_perplexity"):
    """A figure of the runs as Markdown: a line per sampler, a column per number of negatives.

    Several seeds give mean ± standard deviation.
    """
    counts = sorted({run["num_sampled"] for run in runs if run["num_sampled"]})
    lines = [
        "| sampler | " + " | ".join(f"{count:,}" for count in counts) + " |",
        "|---" * (len(counts) + 1) + "|",
    ]
    for title in dict.fromkeys(run["title"] for run in runs):
        own = [run for run in runs if run["title"] == title]
        cells = (
            _cell([run[figure] for run in own if run["num_sampled"] in (count, None)])
            for count in counts or [None]
        )
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(values):
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}" if values else ""


def _rate(data, setting):
    if setting.seconds is not None:
        return setting.learning_rate  # the clock lowers it
    return keras.optimizers.schedules.PolynomialDecay(
        setting.learning_rate, _num_steps(data, setting), end_learning_rate=0.0
    )


def _num_steps(data, setting):
    return max(1, round(setting.epochs * len(data.train)))


def _no_figures(model, seconds, steps):
    return {}


def _perplexity(model, batches, setting):
    if setting.sample:
        batches = batches.take(math.ceil(setting.sample / setting.batch_size))
    return model.evaluate(batches, verbose=0, return_dict=True)["perplexity"]


def _kept(setting, out):
    values = dataclasses.asdict(setting).values()
    name = "-".join(str(value) for value in values).replace("/", "_")
    path = out / f"{name}.json"
    if path.exists():
        return json.loads(path.read_text())
    with multiprocessing.get_context("spawn").Pool(1) as process:
        run = process.apply(train, [setting])
    write_json(path, run)
    print(
        f"{run['title']} {run['num_sampled'] or ''} seed {run['seed']}: perplexity "
        f"{run['validation_perplexity']:.1f} on validation, {run['test_perplexity']:.1f} on "
        f"test, {run['training_seconds']:.0f} s",
        flush=True,
    )
    return run


def _parser():
    parser = argparse.ArgumentParser(
        "python -m tf_largeout.benchmarks language_model",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, usual = parser.add_argument, Setting()
    add("--dataset", default=usual.dataset)
    add("--vocabulary", type=int, help="classes (default: the data set's own number)")
    add("--samplers", nargs="+", choices=[FULL, *SAMPLERS], default=["uniform", "frequency"])
    add("--num-sampled", nargs="+", type=int, default=[8, 32, 128, 512, 1024, 4096])
    add("--seeds", nargs="+", type=int, default=[0])
    add("--epochs", type=float, default=usual.epochs, help="2, or .1 for a tenth of one")
    add("--seconds", type=float, help="of training, in place of epochs")
    add("--learning-rate", type=float, default=usual.learning_rate)
    add("--optimizer", choices=OPTIMIZERS, default=usual.optimizer)
    add("--width", type=int, default=usual.width, help="of the embeddings and the LSTM")
    add("--dropout", type=float, default=usual.dropout)
    add("--batch-size", type=int, default=usual.batch_size, help="windows of a step")
    add("--length", type=int, default=usual.length, help="words of a window")
    add("--tied", action="store_true", help="one table for input and output")
    add("--absolute", action="store_true", help="the softmax of |logit|")
    add("--sample", type=int, help="windows that a perplexity is of (default: all)")
    add("--out", default="benchmark-results/language_model", help="directory of the figures")
    add("--json", help="file for the figures of all runs")
    add("--png", help="file for the picture")
    return parser
