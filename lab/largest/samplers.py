"""`python -m lab.largest.samplers`: memory and time of samplers with up to 100,000,000 classes.

Trains the model of `lab.largest.steps` with each sampler, in its own process. An inverted file
is fitted after `--steps` steps. The program reports the time of this step, of the steps before
and after it, and of a step that updates the lists.
"""

import time

import keras
import numpy as np
import tensorflow as tf

import tf_largeout as tflo
from benchmarks.harness import machine, own_process
from benchmarks.harness.files import write_json
from lab.largest import steps
from lab.shared.command_line import new_parser
from lab.shared.step_ends import StepEnds

SAMPLERS = ("uniform", "log_uniform", "unigram", "inverted_file")
_WARM_UP = 20


def main(arguments=None):
    """Measures what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    report = {"machine": machine.describe(), **vars(options), "rows": []}
    for num_classes in options.num_classes:
        for name in options.samplers:
            report["rows"].append(own_process.call(measure, num_classes, name, options))
            print(report["rows"][-1], flush=True)
            write_json(options.json, report)
    return report


def measure(num_classes, name, options):
    """Measures one sampler: MB of its state, seconds to create, ms per step, peak MiB."""
    keras.utils.set_random_seed(0)
    start = time.perf_counter()
    model = steps.new_model(num_classes, _sampler(name, num_classes, options), options)
    found = {"sampler": name, "num_classes": num_classes}
    found["create_seconds"] = time.perf_counter() - start
    head = model.layers[-1]
    state = [one for one in head.weights if one is not head.embeddings]
    found["state_mb"] = sum(_num_bytes(one) for one in state) / 1e6
    batches = steps.random_batches(num_classes, options)

    def seconds(num_steps):
        ends = StepEnds()
        quietly = {"callbacks": [ends], "shuffle": False, "verbose": 0}
        model.fit(batches, steps_per_epoch=num_steps, **quietly)
        return np.diff(ends.ends, axis=0)

    def median_ms(name):
        times = 1e3 * np.median(seconds(_WARM_UP + options.steps)[_WARM_UP:], axis=0)
        found[f"{name}_ms"], found[f"{name}_cpu_ms"] = times.tolist()

    median_ms("step")
    if name == "inverted_file":
        found["fit_seconds"], found["fit_cpu_seconds"] = seconds(4).max(axis=0).tolist()
        median_ms("search_step")
        schedule = next(one for one in state if one.path.endswith("schedule"))
        fitted_at = schedule.numpy()[1]
        due = fitted_at + max(48, num_classes // 4_200)
        schedule.assign([due - 2, fitted_at])
        times = seconds(4).max(axis=0).tolist()
        found["update_seconds"], found["update_cpu_seconds"] = times
    found["peak_mb"] = machine.peak_mb()
    return found


def _sampler(name, num_classes, options):
    size = options.num_sampled
    if name == "inverted_file":
        fitted_at = _WARM_UP + options.steps + 1
        lists = {"num_lists": options.num_lists, "num_probes": options.num_probes}
        return tflo.samplers.InvertedFileSampler(size, start_step=fitted_at, **lists)
    if name == "unigram":
        counts = np.arange(num_classes, 0, -1)
        return tflo.samplers.UnigramSampler(size, counts=counts)
    samplers = {
        "uniform": tflo.samplers.UniformSampler,
        "log_uniform": tflo.samplers.LogUniformSampler,
    }
    return samplers[name](size)


def _num_bytes(weight):
    return weight.value.shape.num_elements() * tf.as_dtype(weight.dtype).size


def _parser():
    parser = new_parser("largest.samplers", __doc__)
    add = parser.add_argument
    add("--num-classes", nargs="+", type=int, default=[1_000_000, 10_000_000])
    add("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    add("--num-lists", type=int, help="lists of an inverted file, by default 4 sqrt(N)")
    add("--num-probes", type=int, default=16, help="lists searched per example")
    add("--dim", type=int, default=64)
    add("--batch-size", type=int, default=256)
    add("--num-sampled", type=int, default=1024)
    add("--steps", type=int, default=100)
    add("--json", default="benchmark-results/largest_samplers.json", help="file of the report")
    return parser


if __name__ == "__main__":
    main()
