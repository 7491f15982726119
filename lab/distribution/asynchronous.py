"""`python -m lab.distribution.asynchronous`: training with several asynchronous trainers.

Runs two servers with plain `fit`, and with one, two, ... trainers to which `distribute.fit`
dispatches steps. All are processes of this machine, in turns, on the same stream of examples:
the row of a class plus noise. Examples per second are medians over epochs, without the first
epoch, which traces the graph. Precision at 1 is measured on other examples after each epoch,
after the same number of examples for all. The processes share the cores of one machine. With
fewer cores than processes, this measures the cost of dispatching steps, not the gain of
several machines.
"""

import statistics
import time

import keras
import numpy as np
import tensorflow as tf

import tf_largeout as tflo
from benchmarks.harness import machine, own_process
from benchmarks.harness.files import write_json
from lab.distribution.step_turns import small_model
from lab.shared.command_line import new_parser
from tf_largeout.distribute.local_servers import local_servers

_NOISE, _SERVERS, _TESTS = 1.0, 2, 1_000


def main(arguments=None):
    """Measures what the command line asks for and returns the report."""
    options = _parser().parse_args(arguments)
    rows = []
    for _ in range(options.rounds):
        for count in options.trainers:
            with local_servers(_SERVERS + count) as servers:
                addresses = [server.address for server in servers]
                figures = own_process.call(train, options, addresses)
            rows.append({"trainers": count, **figures})
            print(line(rows[-1]), flush=True)
    report = {"machine": machine.describe(), "shape": vars(options), "rows": rows}
    if options.json:
        write_json(options.json, report)
    return report


def train(options, addresses):
    """Trains with the connected trainers; returns examples per second and precisions."""
    machine.use("cpu")
    servers, trainers = addresses[:_SERVERS], addresses[_SERVERS:]
    tflo.distribute.connect(servers, timeout_s=60, trainers=trainers)
    model, rows = _new_model(options), _rows(options)
    y = np.random.default_rng(1).integers(0, options.num_classes, _TESTS)
    noise = np.random.default_rng(2).normal(size=(_TESTS, options.dim)).astype("float32")
    epochs = _Epochs(rows[y] + _NOISE * noise, y)

    def data(seed):
        return _stream(rows, options, seed)

    arguments = {"epochs": options.epochs, "callbacks": [epochs], "verbose": 0}
    if trainers:
        tflo.distribute.fit(model, data, options.steps, **arguments)
    else:
        model.fit(data(0), steps_per_epoch=options.steps, **arguments)
    examples = options.steps * options.batch_size
    rates = [examples / seconds for seconds in epochs.seconds[1:]]
    return {
        "examples_s": statistics.median(rates),
        "precision": epochs.precisions,
        "steps": int(model.optimizer.iterations),
    }


class _Epochs(keras.callbacks.Callback):
    """Records the seconds of each epoch, and the precision after it (not in the seconds)."""

    def __init__(self, x, y):
        super().__init__()
        self._x, self._y, self.seconds, self.precisions = x, y, [], []

    def on_epoch_begin(self, epoch, logs=None):
        self._began = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds.append(time.perf_counter() - self._began)
        dense, head = self.model.layers
        ids = head.top_k(dense(self._x), 1)[1]
        self.precisions.append(float(np.mean(ids[:, 0] == self._y)))


def _new_model(options):
    keras.utils.set_random_seed(1)
    sampler = tflo.samplers.UniformSampler(options.num_sampled)
    model = small_model(options.num_classes, options.dim, sampler, _SERVERS)
    model.compile(
        tflo.optimizers.LazyAdam(1e-2),
        tflo.losses.SampledSoftmaxLoss(),
        steps_per_execution=options.steps_per_execution,
    )
    return model


def _rows(options):
    shape = (options.num_classes, options.dim)
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def _stream(rows, options, seed):
    """Yields batches forever, in a different order for each `seed`."""

    def example(ids):
        features = tf.gather(rows, ids)
        return features + _NOISE * tf.random.normal(tf.shape(features)), ids

    ids = tf.data.Dataset.range(options.num_classes)
    ids = ids.shuffle(options.num_classes, seed=seed).repeat()
    return ids.batch(options.batch_size).map(example).prefetch(2)


def line(row):
    """Formats a row as text."""
    who = f"{row['trainers']} trainers" if row["trainers"] else "plain fit"
    precisions = " ".join(f"{one:.3f}" for one in row["precision"])
    return f"{who:12} {row['examples_s']:9,.0f} examples/s, P@1 {precisions}"


def _parser():
    parser = new_parser("distribution.asynchronous", __doc__)
    add = parser.add_argument
    add("--trainers", type=int, nargs="+", default=[0, 1, 2], help="0 is plain `fit`")
    add("--num-classes", type=int, default=20_000)
    add("--dim", type=int, default=64)
    add("--batch-size", type=int, default=256)
    add("--num-sampled", type=int, default=512)
    add("--epochs", type=int, default=4)
    add("--steps", type=int, default=160, help="steps of an epoch, of all trainers together")
    add("--steps-per-execution", type=int, default=1, help="steps dispatched at a time")
    add("--rounds", type=int, default=1, help="turns of all")
    add("--json", help="file for the figures")
    return parser


if __name__ == "__main__":
    main()
