"""Trains and evaluates one language model, for `lab.shared.language_model`."""

import dataclasses
import math
import time

import keras
import numpy as np

from benchmarks.harness.training import ENDLESS, TrainingClock
from benchmarks.methods.optimizers import OPTIMIZERS
from lab import corpora
from lab.shared.factored_heads import FACTORED_HEADS
from lab.shared.samplers import SAMPLERS
from tf_largeout import layers, losses, metrics

FULL = "full"
WITHOUT_NEGATIVES = (FULL, *FACTORED_HEADS)
_VALIDATION_FRACTION = 0.05


@dataclasses.dataclass(frozen=True)
class Setting:
    """The settings of a run, which together name its file.

    Attributes:
        dataset: name of a text for `corpora.load`.
        vocabulary: number of classes; None for the default of the data set.
        sampler: key of `SAMPLERS`, or one of `WITHOUT_NEGATIVES`: `FULL` for the exact
            softmax, or key of `FACTORED_HEADS`.
        num_sampled: negatives; None without.
        tail: key of `SAMPLERS` for the shared negatives of a sampler that searches; None for
            its own.
        start_step: first step of its search; None for its own rule. Only with `tail`.
        seed: seed of the weights, the draws and the order.
        epochs: number of epochs, if `seconds` is None; may be a fraction.
        seconds: seconds of training, or None.
        by_cpu: whether `seconds` are CPU seconds, which do not depend on other programs.
        learning_rate: initial rate; it falls linearly to zero.
        class_rate: initial rate of a `FactoredOutput`, which has its own rate.
        optimizer: key of `OPTIMIZERS`.
        width: width of the embeddings and of the LSTM.
        dropout: dropout rate of the LSTM's outputs.
        batch_size: windows per step.
        length: words of a window.
        tied: whether input and output share a table.
        absolute: whether the words' probabilities are the softmax of `|logit|`, as suits the
            quadratic kernel.
        sample: number of windows of a split to evaluate on; None for all.
        validation_fraction: share of the text that is the validation split, and not trained
            on; None for 5 %.
        compute_dtype: dtype of the products of the exact softmax in training.
    """

    dataset: str = "brown"
    vocabulary: int | None = None
    sampler: str = "uniform"
    num_sampled: int | None = None
    tail: str | None = None
    start_step: int | None = None
    seed: int = 0
    epochs: float = 3
    seconds: float | None = None
    by_cpu: bool = False
    learning_rate: float = 4e-3
    class_rate: float | None = None
    optimizer: str = "lazy_adam"
    width: int = 200
    dropout: float = 0.2
    batch_size: int = 32
    length: int = 64
    tied: bool = False
    absolute: bool = False
    sample: int | None = None
    validation_fraction: float | None = None
    compute_dtype: str = "float32"

    @property
    def title(self):
        parts = [self.sampler]
        if self.absolute:
            parts.append("absolute softmax")
        if self.compute_dtype != "float32":
            parts.append(self.compute_dtype)
        return ", ".join(parts)


def load(setting):
    """Returns the text of a setting, with a validation split."""
    return corpora.load(
        setting.dataset,
        batch_size=setting.batch_size,
        shuffle_seed=setting.seed,
        validation_fraction=setting.validation_fraction or _VALIDATION_FRACTION,
        vocabulary_size=setting.vocabulary,
        sequence_length=setting.length,
    )


def build_model(data, setting):
    """Returns the compiled model of a setting: ids `[batch, time]` to logits over all words."""
    words = keras.layers.Embedding(data.num_classes, setting.width)
    head = FACTORED_HEADS.get(setting.sampler)
    if head is None:
        output, loss = _output(data, setting, words)
    else:
        rate = _falling(setting.class_rate or head.class_rate, data, setting)
        output, loss = head.layers(data.num_classes, rate), head.loss()
    model = keras.Sequential(
        [
            keras.Input([None], dtype="int32"),
            words,
            keras.layers.LSTM(setting.width, return_sequences=True),
            keras.layers.Dropout(setting.dropout),
            *output,
        ]
    )
    optimizer = OPTIMIZERS[setting.optimizer](_falling(setting.learning_rate, data, setting))
    optimizer.global_clipnorm = 1.0
    model.compile(optimizer=optimizer, loss=loss, metrics=_metrics(setting, head))
    return model


def train(setting):
    """Trains one model and returns its exact figures and the cost of training.

    If other programs run, compare `training_cpu_seconds`, the seconds of all threads.
    """
    keras.utils.set_random_seed(setting.seed)
    data = load(setting)
    model = build_model(data, setting)
    steps, callbacks = _num_steps(data, setting), []
    if setting.seconds is not None:
        clock = TrainingClock(
            setting.seconds, setting.seconds, _no_figures, by_cpu=setting.by_cpu, anneal=1.0
        )
        steps, callbacks = ENDLESS, [clock]
    endless = data.train.repeat()
    started, cpu_started = time.perf_counter(), time.process_time()
    model.fit(endless, steps_per_epoch=steps, callbacks=callbacks, shuffle=False, verbose=0)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    return {
        **dataclasses.asdict(setting),
        "title": setting.title,
        "num_classes": data.num_classes,
        "steps": int(model.optimizer.iterations),
        "training_seconds": seconds,
        "training_cpu_seconds": cpu_seconds,
        **_figures(model, data.validation, setting, "validation"),
        **_figures(model, data.test, setting, "test"),
        "unigram_test_perplexity": unigram_perplexity(data),
    }


def part(batches, setting):
    """Returns the batches of a split to evaluate on, by `sample`."""
    if setting.sample is None:
        return batches
    return batches.take(math.ceil(setting.sample / setting.batch_size))


def unigram_perplexity(data):
    """Returns the test perplexity of the training word frequencies, with add-one smoothing."""
    counts = data.label_counts + 1.0
    log_probabilities = np.log(counts / counts.sum())
    return math.exp(-log_probabilities[data.test_tokens[1:]].mean())


def _output(data, setting, words):
    sampler = None if setting.sampler == FULL else _sampler(data, setting)
    tied = words if setting.tied else None
    output = layers.LargeOutput(data.num_classes, sampler=sampler, embeddings=tied)
    if setting.absolute:
        return [output], losses.AbsoluteSoftmaxLoss()
    if sampler:
        return [output], losses.SampledSoftmaxLoss()
    return [output], losses.SoftmaxLoss(compute_dtype=setting.compute_dtype)


def _sampler(data, setting):
    options = {}
    if setting.tail:
        tail = SAMPLERS[setting.tail](data, setting.num_sampled)
        options = {"tail": tail, "start_step": setting.start_step}
    return SAMPLERS[setting.sampler](data, setting.num_sampled, **options)


def _metrics(setting, head):
    """Returns the precision, and perplexity where the loss is that of probabilities."""
    absolute = setting.absolute if head is None else head.absolute
    ranks = [
        metrics.PrecisionAtK(1, absolute, name="p1"),
        metrics.RecallAtK(10, absolute, name="top10"),
    ]
    if head is not None and not head.has_probabilities:
        return ranks
    return [metrics.Perplexity(name="perplexity"), *ranks]


def _falling(rate, data, setting):
    if setting.seconds is not None:
        return rate  # the clock lowers it
    return keras.optimizers.schedules.PolynomialDecay(
        rate, _num_steps(data, setting), end_learning_rate=0.0
    )


def _num_steps(data, setting):
    return max(1, round(setting.epochs * len(data.train)))


def _no_figures(model, seconds, steps):
    return {}


def _figures(model, batches, setting, split):
    """Returns `p1` and `top10` in per cent, and any `perplexity`, named after the split."""
    found = model.evaluate(part(batches, setting), verbose=0, return_dict=True)
    figures = {f"{split}_{name}": 100 * found[name] for name in ("p1", "top10")}
    if "perplexity" in found:
        figures[f"{split}_perplexity"] = found["perplexity"]
    return figures
