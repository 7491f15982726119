"""`python -m lab.largest.steps`: creating, training, saving and loading 100,000,000 classes.

Trains a `LargeOutput` with rows in bfloat16, without biases, by `RowwiseAdagrad`: 4 bytes of
optimizer state per class. Labels and negatives are uniform, so almost every row of a step is
read from memory. Each size runs in its own process.
"""

import pathlib
import time

import keras
import numpy as np
import tensorflow as tf

import tf_largeout as tflo
from benchmarks.harness import machine, own_process
from benchmarks.harness.files import size_mb, write_json
from lab.shared.command_line import new_parser
from lab.shared.step_ends import StepEnds

_WARM_UP = 20


def main(arguments=None):
    """Measures the sizes of the command line and returns the report."""
    options = _parser().parse_args(arguments)
    rows = []
    for num_classes in options.num_classes:
        rows.append(own_process.call(measure, num_classes, options))
        print(rows[-1], flush=True)
    report = {"machine": machine.describe(), "rows": rows}
    report |= {name: getattr(options, name) for name in ("dim", "batch_size", "num_sampled")}
    write_json(options.json, report)
    return report


def measure(num_classes, options):
    """Measures one size: ms and CPU ms per step, seconds of each phase, peak MiB."""
    keras.utils.set_random_seed(0)
    found, start = {"num_classes": num_classes}, time.perf_counter()
    model = new_model(num_classes, tflo.samplers.UniformSampler(options.num_sampled), options)
    found["create_seconds"] = time.perf_counter() - start
    batches = random_batches(num_classes, options)
    times = StepEnds()
    steps = _WARM_UP + options.steps
    model.fit(batches, steps_per_epoch=steps, callbacks=[times], shuffle=False, verbose=0)
    found |= dict(zip(("ms", "cpu_ms"), times.medians(after=_WARM_UP), strict=True))
    found["peak_mb_of_training"] = machine.peak_mb()
    if options.save:
        path = pathlib.Path(options.save)
        start = time.perf_counter()
        model.save_weights(path)
        found["save_seconds"] = time.perf_counter() - start
        found["file_mb"] = size_mb(path)
        table, some = model.layers[-1].embeddings.value, tf.range(1000)
        first = tf.gather(table, some)  # a slice would copy the table
        start = time.perf_counter()
        model.load_weights(path)
        found["load_seconds"] = time.perf_counter() - start
        tf.debugging.assert_equal(first, tf.gather(table, some))
        path.unlink()
    found["peak_mb"] = machine.peak_mb()
    return found


def random_batches(num_classes, options):
    """Returns an endless dataset of 64 batches, with normal features and uniform labels."""
    pick, shape = np.random.default_rng(0), (64, options.batch_size)
    features = pick.standard_normal((*shape, options.dim), "float32")
    labels = pick.integers(num_classes, size=shape)
    return tf.data.Dataset.from_tensor_slices((features, labels)).repeat()


def new_model(num_classes, sampler, options):
    """Returns a compiled model with rows in bfloat16, whose optimizer is built."""
    head = tflo.layers.LargeOutput(
        num_classes, sampler, use_bias=False, embeddings_dtype="bfloat16"
    )
    model = keras.Sequential(
        [keras.Input([options.dim]), keras.layers.Dense(options.dim), head]
    )
    model.compile(tflo.optimizers.RowwiseAdagrad(0.1), tflo.losses.SampledSoftmaxLoss())
    model.optimizer.build(model.trainable_variables)
    return model


def _parser():
    parser = new_parser("largest.steps", __doc__)
    add = parser.add_argument
    add("--num-classes", nargs="+", type=int, default=[1_000_000, 100_000_000])
    add("--dim", type=int, default=64)
    add("--batch-size", type=int, default=256)
    add("--num-sampled", type=int, default=1024)
    add("--steps", type=int, default=1000)
    add("--save", help="file in which to save, NAME.weights.h5; by default nothing is saved")
    add("--json", default="benchmark-results/largest.json", help="file for the figures")
    return parser


if __name__ == "__main__":
    main()
