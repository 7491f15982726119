"""`python -m lab.largest.planted`: what a model of 100,000,000 classes learns, and its resume.

Each class has a code: `dim` signs that depend on its id only. An example is the code of its
label with some signs inverted. The class rows must learn the codes. A pass shows each class
once, in a fixed order. After each pass the program measures P@1 over all classes, and it
saves the model several times per pass. If the process is killed, the same command continues
from the last save.

`--check` tests this. It starts a second process from the last save but one. This process kills
itself half-way to the last save (`--kill-half-way`). Then it is started again, and every array
of the two last saves is compared.
"""

import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import h5py
import keras
import numpy as np
import tensorflow as tf

import tf_largeout as tflo
from benchmarks.harness import machine
from benchmarks.harness.files import size_mb, write_json
from lab.shared.command_line import new_parser
from tf_largeout.atomic_file import atomic_path

_NOT_KEPT = ("out", "json", "check", "kill_half_way")
_CALL = 8  # steps per call of the compiled step
_TEST_BATCH, _TEST_BATCHES = 256, 2


def main(arguments=None):
    """Trains, or checks the resume, as the command line says. Returns the report."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(arguments)
    out = pathlib.Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    settings = {key: value for key, value in vars(options).items() if key not in _NOT_KEPT}
    report = {"machine": machine.describe(), **settings}
    report |= check(options, out, arguments) if options.check else train(options, out)
    write_json(options.json or out / ("check.json" if options.check else "report.json"), report)
    return report


def train(options, out):
    """Trains all pieces that `out` does not hold yet. Returns the figures of all pieces."""
    keras.utils.set_random_seed(options.seed)
    start, found = time.perf_counter(), {}
    model = build(options)
    found["create_seconds"] = time.perf_counter() - start
    pieces = [json.loads(path.read_text()) for path in _figures(out)]
    if pieces:
        start = time.perf_counter()
        model.load_weights(_weights(out, len(pieces) - 1))
        found["load_seconds"] = time.perf_counter() - start
    for piece in range(len(pieces), options.passes * options.pieces):
        pieces.append(run_piece(model, piece, _weights(out, piece), options))
        write_json(out / f"piece_{piece:03}.json", pieces[-1])
        _weights(out, piece - 2).unlink(missing_ok=True)
        print(pieces[-1], flush=True)
    return found | {"pieces": pieces}


def build(options):
    """Returns the compiled model, with its optimizer built."""
    head = tflo.layers.LargeOutput(
        options.num_classes,
        tflo.samplers.UniformSampler(options.num_sampled),
        use_bias=False,
        embeddings_dtype="bfloat16",
    )
    model = keras.Sequential([keras.Input([options.dim]), head])
    model.compile(
        tflo.optimizers.RowwiseAdagrad(options.learning_rate),
        tflo.losses.SampledSoftmaxLoss(),
        metrics=[tflo.metrics.PrecisionAtK(1)],
        steps_per_execution=_CALL,
    )
    model.optimizer.build(model.trainable_variables)
    return model


def run_piece(model, piece, weights, options):
    """Trains one piece of a pass, measures and saves. Returns the figures."""
    steps = options.num_classes // (options.batch_size * options.pieces * _CALL) * _CALL
    found = {"piece": piece, "steps": steps, "examples": steps * options.batch_size}
    start = time.perf_counter(), time.process_time()
    data = examples(range(piece * steps, (piece + 1) * steps), options.batch_size, 0, options)
    callbacks = [_KillHalfWay()] if options.kill_half_way else []
    model.fit(data, steps_per_epoch=steps, callbacks=callbacks, shuffle=False, verbose=0)
    found["fit_seconds"] = time.perf_counter() - start[0]
    found["fit_cpu_seconds"] = time.process_time() - start[1]
    found["peak_mb_of_training"] = machine.peak_mb()
    if (piece + 1) % options.pieces == 0:
        start = time.perf_counter()
        test = examples(range(_TEST_BATCHES), _TEST_BATCH, 1, options)
        found |= model.evaluate(test, verbose=0, return_dict=True)
        found["evaluate_seconds"] = time.perf_counter() - start
    start = time.perf_counter()
    with atomic_path(weights) as unfinished:
        model.save_weights(unfinished)
    found |= {"save_seconds": time.perf_counter() - start, "file_mb": size_mb(weights)}
    return found | {"peak_mb": machine.peak_mb()}


def examples(batches, batch_size, stream, options):
    """Returns the batches with the given numbers: codes with inverted signs, and labels.

    Stream 0 is for training: its batches show each class once before any class again. The
    labels of stream 1 are drawn from all classes.
    """
    num_classes = options.num_classes
    factor = int(num_classes * (math.sqrt(5) - 1) / 2)
    while math.gcd(factor, num_classes) > 1:
        factor += 1

    def batch(number):
        places = number * batch_size + tf.range(batch_size, dtype=tf.int64)
        labels = places % num_classes * factor % num_classes
        seed = tf.stack([stream, number])
        if stream:
            labels = tf.random.stateless_uniform(
                [batch_size], seed, maxval=num_classes, dtype=tf.int64
            )
        noise = tf.random.stateless_uniform([batch_size, options.dim], seed)
        inverted = noise < options.inverted
        signs = codes(labels, options.dim)
        return tf.where(inverted, -signs, signs), labels

    return tf.data.Dataset.range(batches.start, batches.stop).map(batch).prefetch(4)


def codes(ids, dim):
    """Maps ids, int64 `[batch]`, to codes: float32 `[batch, dim]` signs, `dim` <= 64.

    The signs are the bits of a mix of the id (SplitMix64, Steele et al. 2014).
    """
    xor, shifted = tf.bitwise.bitwise_xor, tf.bitwise.right_shift
    bits = tf.cast(ids + 1, tf.uint64) * tf.constant(0x9E3779B97F4A7C15, tf.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        bits = xor(bits, shifted(bits, tf.constant(shift, tf.uint64)))
        bits *= tf.constant(factor, tf.uint64)
    bits = xor(bits, shifted(bits, tf.constant(31, tf.uint64)))
    bits = shifted(bits[:, None], tf.cast(tf.range(dim), tf.uint64))
    return 2 * tf.cast(tf.bitwise.bitwise_and(bits, tf.ones([], tf.uint64)), tf.float32) - 1


def check(options, out, arguments):
    """Repeats the last piece in a process that is killed, and compares the saved arrays."""
    last = len(_figures(out)) - 1
    copy = out / "check"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for path in _figures(out)[:-1]:
        shutil.copy(path, copy)
    (copy / _weights(out, last - 1).name).hardlink_to(_weights(out, last - 1))
    command = [sys.executable, "-m", "lab.largest.planted", *arguments, "--out", str(copy)]
    command.remove("--check")
    killed = subprocess.run([*command, "--kill-half-way"], check=False)
    was_killed = killed.returncode == -signal.SIGKILL
    subprocess.run(command, check=True)
    different = differences(_weights(out, last), _weights(copy, last))
    return {"was_killed": was_killed, "different_arrays": different}


def differences(one, other):
    """Returns the names of the arrays that are not bit-identical in two HDF5 files."""
    found = []
    with h5py.File(one) as one, h5py.File(other) as other:
        names = [name for file in (one, other) for name in _arrays(file)]
        for name in dict.fromkeys(names):
            both = name in one and name in other and one[name].shape == other[name].shape
            if not both or not _equal(one[name], other[name]):
                found.append(name)
    print(f"{len(set(names))} arrays, {len(found)} differ: {found}")
    return found


class _KillHalfWay(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch >= self.params["steps"] / 2:
            os.kill(os.getpid(), signal.SIGKILL)


def _arrays(file):
    names = []
    file.visititems(lambda name, item: names.append(name) if hasattr(item, "shape") else None)
    return names


def _equal(one, other, block=1_000_000):
    if not one.shape:
        return one[()] == other[()]
    blocks = range(0, len(one), block)
    return all(np.array_equal(one[i : i + block], other[i : i + block]) for i in blocks)


def _weights(out, piece):
    return out / f"piece_{piece:03}.weights.h5"


def _figures(out):
    return sorted(out.glob("piece_*.json"))


def _parser():
    parser = new_parser("largest.planted", __doc__)
    add = parser.add_argument
    add("--num-classes", type=int, default=100_000_000)
    add("--dim", type=int, default=64)
    add("--batch-size", type=int, default=4096)
    add("--num-sampled", type=int, default=1024)
    add("--learning-rate", type=float, default=0.1)
    add("--inverted", type=float, default=0.05, help="share of inverted signs")
    add("--passes", type=int, default=3, help="how often each class is shown")
    add("--pieces", type=int, default=2, help="saves per pass")
    add("--seed", type=int, default=0)
    add("--check", action="store_true", help="test the resume after a complete run")
    add("--kill-half-way", action="store_true", help="kill this process in the next piece")
    add("--out", default="benchmark-results/largest", help="directory of figures and files")
    add("--json", help="file for the report (default: in --out)")
    return parser


if __name__ == "__main__":
    main()
