"""`python -m lab.distribution.replicas`: time and memory of a step on several replicas.

Runs the same batch on one device and on replicas of a `tf.distribute.MirroredStrategy`, each on
a logical CPU. Reports milliseconds per step in plain `fit` (medians over steps after a warm-up,
in turns), the memory of the process afterwards, and the additional memory during a step. The
logical CPUs share the cores of the machine. So this measures the cost of replicas, not the gain
of more devices. A step that copied the matrix would need memory that grows with the classes.
"""

import tensorflow as tf

from benchmarks.harness import machine, own_process
from benchmarks.harness.files import write_json
from benchmarks.harness.step_case import StepTimes, dense_task
from benchmarks.harness.step_clock import WARM_UP, StepClock
from lab.distribution import step_turns
from lab.shared.command_line import new_parser


def main(arguments=None):
    """Measures what the command line asks for and returns the report."""
    options = _parser().parse_args(arguments)
    cases = [(n, count) for n in options.num_classes for count in (1, options.replicas)]
    runs = {case: [] for case in cases}
    for _ in range(options.rounds):
        for case in cases:
            runs[case].append(own_process.call(train, options, *case))
            print(_line(case, runs[case][-1]), flush=True)
    rows = [
        {"num_classes": case[0], "replicas": case[1], **step_turns.middle(runs[case])}
        for case in cases
    ]
    report = {"machine": machine.describe(), "shape": vars(options), "rows": rows}
    if options.json:
        write_json(options.json, report)
    print("Medians of the rounds:")
    for row in rows:
        print(_line((row["num_classes"], row["replicas"]), row))
    return report


def train(options, num_classes, num_replicas):
    """Trains in this process and returns the time and memory of a step."""
    machine.use("cpu")
    model = _model(options, num_classes, _strategy(num_replicas))
    task = dense_task(num_classes, options.dim, options.batch_size)
    clock = StepClock(options.steps, options.seconds)
    epoch = {"steps_per_epoch": options.steps + WARM_UP, "verbose": 0, "shuffle": False}
    model.fit(task.train, callbacks=[StepTimes(clock)], **epoch)
    held = machine.resident_mb()
    return {
        "ms": sorted(clock.milliseconds)[len(clock.milliseconds) // 2],
        "steps": len(clock.milliseconds),
        "held_mb": held,
        "step_mb": machine.peak_mb() - held,
    }


def _strategy(num_replicas):
    """Returns a strategy with a logical CPU per replica; for one replica, the default one."""
    if num_replicas == 1:
        return tf.distribute.get_strategy()
    cpu = tf.config.list_physical_devices("CPU")[0]
    parts = [tf.config.LogicalDeviceConfiguration()] * num_replicas
    tf.config.set_logical_device_configuration(cpu, parts)
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)])


def _model(options, num_classes, strategy):
    with strategy.scope():
        model = step_turns.compiled_model(options, num_classes)
        model.optimizer.build(model.trainable_variables)
    return model


def _line(case, run):
    return (
        f"{case[0]:>12,} classes, {case[1]} replicas: {run['ms']:7.2f} ms per step, "
        f"{run['held_mb']:,.0f} MiB held, during a step {run['step_mb']:,.0f} MiB more"
    )


def _parser():
    parser = new_parser("distribution.replicas", __doc__)
    parser.add_argument("--num-classes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--replicas", type=int, default=2, help="that share a batch")
    step_turns.add_arguments(parser)
    return parser


if __name__ == "__main__":
    main()
