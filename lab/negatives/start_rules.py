"""`python -m lab.negatives.start_rules`: P@1 by the step in which a search begins, and signals.

All runs of a problem and a seed share their steps before the search begins: the model without a
search is trained once, and its state at each start is the beginning of another run. The length
of a run is counted in steps without a search. A step with a search counts as `--cost` of them,
which should be the ratio of their processor times; the program measures both. The rate is
constant, and falls to zero over the last quarter of each run.
"""

import json
import pathlib
import time

import keras
import numpy as np
import tensorflow as tf

from benchmarks.harness import machine
from benchmarks.harness.evaluation import evaluate
from benchmarks.harness.files import write_json
from lab.negatives import start_problems
from lab.shared import threads
from lab.shared.command_line import new_parser
from tf_largeout import layers, losses, optimizers, samplers

_FALL = 0.25
_AT_ONCE = 25  # steps in one call
_EXAMPLES = 32  # whose exact probabilities a look computes


class Run:
    """A model, its data and its state."""

    def __init__(self, problem, options):
        keras.utils.set_random_seed(0)
        loaded = start_problems.load(problem, options.batch_size, 0, folder=options.data)
        self.task, (features, labels) = loaded
        self.features = tf.constant(features)
        self.labels = tf.constant(labels.reshape(len(labels), -1))
        self.seed, self.options, self.step = 0, options, 0
        tail = samplers.UnigramSampler(counts=self.task.label_counts)
        self.sampler = samplers.InvertedFileSampler(
            options.num_sampled, tail=tail, start_step=2**40, seed=0
        )
        self.head = layers.LargeOutput(self.task.num_classes, sampler=self.sampler)
        inputs = keras.Input(features.shape[1:], dtype=features.dtype.name)
        self.encoder = keras.Sequential([inputs, self.task.encoder(options.dim)])
        self.model = keras.Sequential([inputs, self.encoder, self.head])
        self.optimizer = optimizers.LazyAdam(options.rate)
        loss = getattr(losses, options.loss)()
        self.optimizer.build(self.model.trainable_variables)

        @tf.function(autograph=True)
        def train(rows):
            for of_step in rows:
                x, y = tf.gather(self.features, of_step), tf.gather(self.labels, of_step)
                with tf.GradientTape() as tape:
                    value = loss(y, self.model(x, training=True))
                weights = self.model.trainable_variables
                self.optimizer.apply(tape.gradient(value, weights), weights)

        self._train = train
        self._look = tf.function(self._signals)
        self._order, self._first = {}, self.state()

    def state(self):
        """Returns the step, and a copy of all variables."""
        found = [*self.model.variables, *self.optimizer.variables]
        return self.step, [tf.identity(variable.value) for variable in found]

    def restore(self, state):
        """Continues from a `state`."""
        self.step, values = state
        found = [*self.model.variables, *self.optimizer.variables]
        for variable, value in zip(found, values, strict=True):
            variable.assign(value)

    def rows(self, count):
        """Returns int32 `[count, batch_size]`: the examples of the next steps."""
        size = self.options.batch_size
        places = np.arange(self.step * size, (self.step + count) * size)
        epochs, within = np.divmod(places, len(self.labels))
        result = np.empty(len(places), np.int32)
        for epoch in np.unique(epochs):
            if epoch not in self._order:
                rng = np.random.default_rng([self.seed, epoch])
                self._order[epoch] = rng.permutation(len(self.labels)).astype(np.int32)
            result[epochs == epoch] = self._order[epoch][within[epochs == epoch]]
        return result.reshape(count, size)

    def train_to(self, step):
        """Trains with the current rate; returns the processor seconds per step."""
        before, began = time.process_time(), self.step
        while self.step < step:
            count = min(_AT_ONCE, step - self.step)
            self._train(tf.constant(self.rows(count)))
            self.step += count
        return (time.process_time() - before) / max(1, self.step - began)

    def reseed(self, seed):
        """Starts a new run, with other initial rows, draws and order of the examples."""
        self.restore(self._first)
        self.seed, self._order = seed, {}
        for weight in self.model.trainable_variables:
            order = np.random.default_rng(seed).permutation(weight.shape[0])
            weight.assign(tf.gather(weight.value, order))
        self.head.seed_state.assign([seed + 1, 0])

    def step_by_labels(self):
        """Returns the step in which a search begins by the rule of labels.

        It is `num_classes / 200`, limited to the range from 100 to 1,000; or later, until half
        of 64 labels of the first batch have come back 15 times, at most three times this step.
        """
        first = min(max(self.task.num_classes // 200, 100), 1000)
        self.step = 0
        batches = self.labels.numpy()[self.rows(3 * first)]
        present = batches[0][batches[0] >= 0]
        watched = present[np.arange(64) * len(present) // 64]
        times = np.zeros(64)
        for step, batch in enumerate(batches[1:], 2):
            counts = np.bincount(batch[batch >= 0], minlength=self.task.num_classes)
            times += counts[watched]
            if step >= first and 2 * np.sum(times >= 15) >= 64:
                return step
        return 3 * first

    def result(self, steps):
        """Returns P@1 in step `steps`, with a falling rate at the end. Restores the state."""
        state, begin, rate = self.state(), self.step, self.options.rate
        while self.step < steps:
            share = (steps - self.step) / max(1, steps - begin)
            self.optimizer.learning_rate.assign(rate * share)
            self.train_to(min(steps, self.step + _AT_ONCE))
        self.optimizer.learning_rate.assign(rate)
        p1 = self.p1()
        self.restore(state)
        return p1

    def p1(self):
        """Returns P@1 on test examples."""
        sample = self.task.test_sample(self.options.sample)
        return evaluate(self.model, *sample)["p1"]

    def signals(self):
        """Returns the signals of the next batch, a dict of floats."""
        rows = self.rows(1)[0]
        found = self._look(tf.gather(self.features, rows), tf.gather(self.labels, rows))
        return {name: round(float(value), 4) for name, value in found.items()}

    def _signals(self, features, labels):
        """Returns signals of a batch: from its tail, and from all classes for some examples."""
        features, biases = self.encoder(features), self.head.bias.value
        table = self.head.embeddings.value
        ids, _, counts = self.sampler.tail.draw_shared(labels, tf.constant([7, 7], tf.int64))
        is_label = tf.reduce_any(labels[:, :, None] == ids[None, None], axis=1)
        wrong = features @ tf.transpose(tf.gather(table, ids)) + tf.gather(biases, ids)
        wrong = tf.where(is_label, -1e9, wrong)
        weights = tf.nn.softmax(wrong - tf.math.log(counts), axis=1)
        of_labels = tf.einsum("bd,bld->bl", features, tf.gather(table, tf.maximum(labels, 0)))
        of_labels += tf.gather(biases, tf.maximum(labels, 0))
        of_labels = tf.where(labels >= 0, of_labels, -1e9)
        of_tail = tf.reduce_logsumexp(wrong - tf.math.log(counts), axis=1)
        by_tail = tf.sigmoid(of_tail - tf.reduce_logsumexp(of_labels, axis=1))
        is_right = tf.reduce_max(of_labels, axis=1) > tf.reduce_max(wrong, axis=1)
        few = labels[:_EXAMPLES]
        logits = features[:_EXAMPLES] @ tf.transpose(table) + biases
        places = tf.stack([tf.where(few >= 0)[:, 0], few[few >= 0]], axis=1)
        lowest = tf.fill([tf.shape(places)[0]], -1e9)
        others = tf.tensor_scatter_nd_update(logits, places, lowest)
        partition = tf.reduce_logsumexp(logits, axis=1, keepdims=True)
        return {
            "size": tf.reduce_mean(1 / tf.reduce_sum(weights**2, axis=1)),
            "wrong_by_tail": tf.reduce_mean(by_tail),
            "right_in_tail": tf.reduce_mean(tf.cast(is_right, tf.float32)),
            "wrong": tf.reduce_mean(tf.reduce_sum(tf.exp(others - partition), axis=1)),
            "hardest_16": tf.reduce_mean(
                tf.reduce_sum(tf.exp(tf.math.top_k(others, 16)[0] - partition), axis=1)
            ),
        }


class Measurement:
    """All runs of one seed: P@1 by start and length, and the signals of the run without one.

    Args:
        run: A `Run`.
        seed: Seed of the initial rows, the draws and the order.
        units: Lengths of the runs, in steps without a search.
        options: Options of the command line.
    """

    def __init__(self, run, seed, units, options):
        self.run, self.seed, self.options = run, seed, options
        self.looks, self.runs, self.costs = [], [], {"plain": [], "search": []}
        self.ends = {unit: round(unit * (1 - _FALL)) for unit in sorted(units)}
        self.kept = {}  # states of the run without a search

    def report(self):
        """Trains all and returns the figures as a dict."""
        self.run.reseed(self.seed)
        self.train_without_search()
        num_classes = self.run.task.num_classes
        by_rule = {
            "by_size": step_by_size(self.looks, num_classes),
            "by_labels": self.run.step_by_labels(),
        }
        starts = {*self.kept}
        for step in by_rule.values():
            if all(abs(step - other) > other / 3 for other in starts):
                starts.add(step)
        for start in sorted(starts):
            self.train_with_search(start)
        costs = {name: float(np.median(values)) for name, values in self.costs.items()}
        found = {"problem": self.options.problem, "seed": self.seed, **by_rule}
        figures = {"costs": costs, "looks": self.looks, "runs": self.runs}
        return {**found, "num_classes": num_classes, **figures}

    def train_without_search(self):
        """Trains, looks at the signals, and keeps the states from which searches begin."""
        every, starts, longest = self.options.look, self.options.starts, max(self.ends.values())
        for stop in sorted({*range(0, longest, every), *starts, *self.ends.values()}):
            if stop > longest:
                return
            self.costs["plain"].append(self.run.train_to(stop))
            if stop % every == 0:
                self.looks.append({"step": stop, **self.run.signals()})
                print(self.options.problem, self.seed, self.looks[-1], flush=True)
            if stop in starts:
                self.kept[stop] = self.run.state()
            for unit in [unit for unit, end in self.ends.items() if end == stop]:
                self.record(None, unit, unit)

    def train_with_search(self, start):
        """Trains with a search from step `start`, for all lengths."""
        before = max((step for step in self.kept if step <= start), default=None)
        if before is None:
            return
        self.run.restore(self.kept[before])
        self.run.train_to(start)
        self.run.sampler.rebuild(self.run.head)
        for unit, end in self.ends.items():
            if start >= end:
                continue
            steps = round(start + (unit - start) / self.options.cost)
            stop = round(steps * (1 - _FALL))
            if stop > self.run.step:
                self.costs["search"].append(self.run.train_to(stop))
            self.record(start, unit, steps)

    def record(self, start, unit, steps):
        """Ends the run of a length with a falling rate, and keeps its P@1."""
        p1 = self.run.result(steps)
        self.runs.append({"start": start, "units": unit, "steps": steps, "p1": p1})
        print(self.options.problem, self.seed, self.runs[-1], flush=True)


def step_by_size(looks, num_classes):
    """Returns the first step in which the tail's effective sample size is below 16.

    It is at most `3 num_classes / 200`, limited to the range from 300 to 3,000.
    """
    latest = min(max(3 * num_classes // 200, 300), 3000)
    return min([look["step"] for look in looks if look["size"] < 16] + [latest])


def main(arguments=None):
    """Runs what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    threads.use_one()
    path = pathlib.Path(options.json)
    report = json.loads(path.read_text()) if path.exists() else None
    report = report or {"machine": machine.describe(), "options": vars(options), "runs": []}
    run = Run(options.problem, options)
    for seed in options.seeds:
        units = options.units if seed in options.long else options.units[:1]
        report["runs"].append(Measurement(run, seed, units, options).report())
        write_json(path, report)
    return report


def _parser():
    parser = new_parser("negatives.start_rules", __doc__)
    add = parser.add_argument
    add("--problem", required=True)
    add("--starts", nargs="*", type=int, default=[300, 1000])
    add("--units", nargs="+", type=int, default=[1500, 4500], help="length of the runs")
    add("--long", nargs="*", type=int, default=[0], help="seeds of all lengths, not the first")
    add("--cost", type=float, default=1.5, help="of a step with a search")
    add("--seeds", nargs="+", type=int, default=[0])
    add("--batch-size", type=int, default=256)
    add("--num-sampled", type=int, default=1024)
    add("--dim", type=int, default=64)
    add("--rate", type=float, default=1e-2)
    add("--loss", default="SampledSoftmaxLoss")
    add("--sample", type=int, default=2000)
    add("--look", type=int, default=50)
    add("--data", default="benchmark-results/start-problems")
    add("--json", required=True)
    return parser


if __name__ == "__main__":
    main()
