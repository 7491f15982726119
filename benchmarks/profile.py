"""`python -m benchmarks profile`: time of the parts of a training step.

Measures longer and longer parts of the step on real batches. It starts with the encoder alone
and adds, one after the other, the output layer with the loss, the gradients, and the optimizer.
These are the whole train step. Finally it measures a step inside `fit`. The time of a part is
the difference to the previous measurement. Searches run from the first step on. The last lines
are the limits of the machine for the matrix products and for the bytes of the rows that the
step reads and writes.
"""

import time

import numpy as np
import tensorflow as tf

from benchmarks.harness import machine, own_process, tasks
from benchmarks.harness.files import new_parser, write_json
from benchmarks.harness.plots import draw_profile
from benchmarks.harness.tasks import task_argument
from benchmarks.methods.method_table import METHODS
from benchmarks.methods.models import CandidateModel, encoder_of
from benchmarks.methods.optimizers import ROW_PASSES
from benchmarks.race import setting_argument

_BATCHES = 64
PARTS = ("encoder", "output and loss", "gradients", "optimizer", "Keras's loop and input")


def main(arguments=None):
    """Profiles the methods of the command line and returns the report."""
    options = _parser().parse_args(arguments)
    rows = {}
    for name in options.methods:
        rows[name] = own_process.call(profile, options.task, name, dict(options.set))
        print(_lines(rows[name]))
    report = {"machine": machine.describe(), "task": options.task, "methods": rows}
    if options.json:
        write_json(options.json, report)
    if options.png:
        draw_profile(report, PARTS, options.png)
    return report


def profile(task_name, method, overrides):
    """Returns the milliseconds of each of `PARTS` and the limits of the machine, as a dict."""
    overrides = {**METHODS[method].searching_at_once(), **overrides}
    settings = METHODS[method].settings_for(task_name, **overrides)
    task = tasks.load(task_name, settings.batch_size)
    model = METHODS[method].model(task, settings)
    batches = list(task.train.take(_BATCHES))
    whole = [_milliseconds(part, batches) for part in _ever_longer_parts(model)]
    whole.append(_milliseconds_in_fit(model, task.train, settings.steps_per_execution))
    limits = machine.limits()
    products = 6 * settings.batch_size * settings.num_sampled * settings.dim
    row_bytes = _row_bytes(task, batches, settings)
    return {
        "title": METHODS[method].title,
        "parts_ms": dict(zip(PARTS, np.diff(whole, prepend=0.0).tolist(), strict=True)),
        "step_ms": whole[-1],
        "products_at_machine_rate_ms": products / limits["gflops"] / 1e6,
        "rows_at_machine_rate_ms": row_bytes / limits["gb_per_s"] / 1e6,
        "limits": limits,
        "settings": vars(settings),
    }


def _row_bytes(task, batches, settings):
    """Returns the bytes of rows read, of gradients written and read, and of the optimizer."""
    distinct = settings.num_sampled
    for features, labels in batches:
        parts = [labels, features] if task.num_features else [labels]
        distinct += sum(len(np.unique(part)) for part in parts) / len(batches)
    passes = 3 + ROW_PASSES[settings.optimizer]
    return passes * 4 * settings.dim * distinct


def _ever_longer_parts(model):
    encoder = model.encoder if isinstance(model, CandidateModel) else encoder_of(model)

    def loss(features, labels):
        if isinstance(model, CandidateModel):
            return model.sampled_loss(encoder(features), tf.cast(labels, tf.int64))
        return model.compute_loss(features, labels, model(features, training=True))

    def gradients(features, labels):
        with tf.GradientTape() as tape:
            value = loss(features, labels)
        parts = tape.gradient(value, [v.value for v in model.trainable_variables])
        return [p.values if isinstance(p, tf.IndexedSlices) else p for p in parts]

    yield lambda features, labels: encoder(features)
    yield loss
    yield gradients
    yield lambda features, labels: model.train_step((features, labels))


def _milliseconds(function, batches):
    # Two nested functions, as in `fit`: TensorFlow prunes unused results of the inner function.
    inner = tf.function(function, autograph=False, reduce_retracing=True)
    function = tf.function(inner, autograph=False, reduce_retracing=True)
    times = []
    for _ in range(3):  # the first round traces, and touches memory for the first time
        for batch in batches:
            start = time.perf_counter()
            function(*batch)
            machine.finish()
            times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times[len(batches) :]))


def _milliseconds_in_fit(model, batches, steps_per_execution):
    steps = _BATCHES * steps_per_execution
    model.fit(batches, steps_per_epoch=steps_per_execution, verbose=0, shuffle=False)
    start = time.perf_counter()
    model.fit(batches, steps_per_epoch=steps, verbose=0, shuffle=False)
    return 1e3 * (time.perf_counter() - start) / steps


def _lines(row):
    lines = [f"{row['title']}: {row['step_ms']:.2f} ms per step"]
    for part, ms in row["parts_ms"].items():
        lines.append(f"  {part:26} {ms:7.2f} ms {ms / row['step_ms']:5.0%}")
    lines.append(f"  limit: matrix products      {row['products_at_machine_rate_ms']:5.2f} ms")
    lines.append(f"  limit: bytes of the rows    {row['rows_at_machine_rate_ms']:5.2f} ms")
    return "\n".join(lines)


def _parser():
    parser = new_parser("profile", __doc__)
    add = parser.add_argument
    add("--task", type=task_argument, default="place_names")
    add("--methods", nargs="+", choices=METHODS, default=["ours", "stock_best"])
    add("--set", type=setting_argument, action="append", default=[], metavar="NAME=VALUE")
    return parser
