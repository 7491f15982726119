"""`python -m benchmarks gpu_kernels`: which GPU kernels the steps need, without a GPU.

It traces the training, test and predict step of a model with each part of the library, with
stock operations, and looks up the kernel of each operation in TensorFlow. It needs the CUDA
build of TensorFlow (`pip install tensorflow`), but no GPU. A second CPU device stands in for
the GPU. It also lists where a step waits for the GPU. It fails if an operation that must run on
the GPU has no kernel there, or if a training step with static negatives waits.
"""

import os

import tensorflow as tf

from benchmarks.harness import graph_places
from benchmarks.harness.files import new_parser, write_json

STAND_IN = "CPU:1"

_TABLES = ("kernels", "waits", "static_waits", "missing")


def main(arguments=None):
    """Prints the tables; raises a SystemExit if a kernel is missing or a step waits."""
    parser = new_parser("gpu_kernels", __doc__, has_picture=False)
    parser.add_argument("--models", nargs="+", metavar="NAME", help="only these models")
    options = parser.parse_args(arguments)
    if not tf.test.is_built_with_cuda():
        parser.error("this TensorFlow has no GPU kernels: install `tensorflow`")
    os.environ["LARGEOUT_OPS"] = "stock"  # before the import of tf_largeout
    use_two_devices()
    report = analyse(options.models)
    if options.json:
        lines = {name: [" | ".join(row) for row in report[name]] for name in _TABLES}
        write_json(options.json, {**report, **lines})
    print_tables(report)
    if report["missing"] or report["static_waits"]:
        raise SystemExit(1)


def use_two_devices():
    """Gives this process two CPU devices, before TensorFlow has run anything."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)


def analyse(names=None):
    """Traces all steps of the models; returns the report."""
    from benchmarks.harness.gpu_models import STATIC, cases

    kernels, waits, missing = {}, [], []
    for name, case in cases().items():
        if names and name not in names:
            continue
        for step, found in analyse_case(case).items():
            for use in found.uses:
                kernels.setdefault((use.op, use.dtypes, use.kernel, use.on), set()).add(name)
            for wait in sorted(found.waits, key=str):
                waits.append(
                    [name, step, wait.producer, wait.consumer, wait.reason, wait.where]
                )
            missing += [[name, step, error] for error in sorted(found.errors)]
    rows = [[*key, ", ".join(sorted(models))] for key, models in sorted(kernels.items())]
    static = [one for one in waits if one[0] in STATIC and one[1] == "train"]
    return {
        "tensorflow": tf.__version__,
        "kernels": rows,
        "waits": waits,
        "static_waits": static,
        "missing": missing,
    }


def analyse_case(case):
    """Returns the `Analysis` of each step of a model that is on the stand-in of the GPU."""
    from tf_largeout.ops import places

    with places.stand_in(STAND_IN):
        with tf.device(STAND_IN):
            model = case.build()
            x, y = case.batch()
            model.optimizer.build(model.trainable_variables)
        found = {}
        for step, arguments in {"train": (x, y), "test": (x, y), "predict": (x,)}.items():
            traced = _trace(model, step, arguments)
            found[step] = graph_places.analyse(traced, STAND_IN)
    return found


def _trace(model, step, arguments):
    method = getattr(model, f"{step}_step")

    def call(*data):
        return method(data)

    specs = [tf.TensorSpec([None, *one.shape[1:]], tf.as_dtype(one.dtype)) for one in arguments]
    return tf.function(call, autograph=False).get_concrete_function(*specs)


def print_tables(report):
    """Prints the tables of kernels and of waits, in Markdown."""
    print(f"TensorFlow {report['tensorflow']}\n")
    print("| operation | dtypes | kernel | runs on | models |\n|---|---|---|---|---|")
    for row in report["kernels"]:
        print("| " + " | ".join(row) + " |")
    print(f"\n{len(report['waits'])} waits, {len(report['static_waits'])} of them in training")
    print("steps with static negatives.\n")
    print("| model | step | of | for | why | line |\n|---|---|---|---|---|---|")
    for row in report["waits"]:
        print("| " + " | ".join(row) + " |")
    for name, step, error in report["missing"]:
        print(f"{name}, {step}: {error}")
