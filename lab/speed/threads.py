"""`python -m lab.speed.threads`: what a second core costs and gains in a training step.

Measures wall and CPU milliseconds of a sampled step in `fit` with different threads of
TensorFlow, in turns: the intra-op threads, which share the loops of an op, and the inter-op
threads, which run several ops at once. Idle threads of both pools spin for some time before
they sleep. One setting switches this off, by a private interface of TensorFlow, because no
public one exists. In another setting, an unrelated loop uses the second core. If it increases
the CPU time of the step on the first core, the cores share parts of the processor.
"""

import dataclasses
import functools
import importlib
import os
import signal
import subprocess
import sys

import tensorflow as tf

from benchmarks.harness import machine, own_process
from benchmarks.harness.files import markdown, write_json
from benchmarks.harness.step_case import StepCase
from lab.shared.command_line import new_parser


@dataclasses.dataclass(frozen=True)
class Setting:
    """Cores and threads of a process.

    Attributes:
        cores: Number of cores.
        intra_op: Number of intra-op threads.
        inter_op: Number of inter-op threads.
        spins: Whether idle threads spin, as by default.
        busy: Whether a loop runs on another core.
    """

    cores: int
    intra_op: int
    inter_op: int
    spins: bool = True
    busy: bool = False


SETTINGS = {
    "1 core": Setting(1, 1, 1),
    "1 core, another core busy": Setting(1, 1, 1, busy=True),
    "2 cores, intra-op 2, inter-op 2": Setting(2, 2, 2),
    "2 cores, intra-op 2, inter-op 1": Setting(2, 2, 1),
    "2 cores, intra-op 1, inter-op 2": Setting(2, 1, 2),
    "2 cores, intra-op 1, inter-op 1": Setting(2, 1, 1),
    "2 cores, intra-op 2, inter-op 2, no spinning": Setting(2, 2, 2, spins=False),
}
METHODS = {
    "ours": ("ours", "lazy_adam"),
    "tf.nn": ("tf_nn_sampled_softmax", "row_sparse_adam"),
}
_FIGURES = ("ms_10", "ms", "ms_90", "cpu_ms_10", "cpu_ms", "cpu_ms_90")


def main(arguments=None):
    """Measures what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    method, optimizer = METHODS[options.method]
    case = StepCase(
        method,
        optimizer,
        options.num_classes,
        max_steps=options.steps,
        max_seconds=60.0,
    )
    calls = [
        functools.partial(_figures, case=case, setting=setting, steps=options.steps_per_turn)
        for setting in SETTINGS.values()
    ]
    rows = []
    for (title, setting), found in zip(
        SETTINGS.items(), own_process.call_in_turns(calls), strict=True
    ):
        kept = {name: round(found[name], 3) for name in _FIGURES}
        rows.append({"setting": title, **dataclasses.asdict(setting), **kept})
    report = {"machine": machine.describe(), **dataclasses.asdict(case), "rows": rows}
    print(table(rows))
    if options.json:
        write_json(options.json, report)
    return report


def table(rows):
    """Returns the median milliseconds as Markdown, with 10th and 90th percentile."""
    head = ["threads", "wall ms per step", "CPU ms per step"]
    return markdown(head, [[row["setting"], _cell(row), _cell(row, "cpu_")] for row in rows])


def _cell(row, kind=""):
    low, median, high = (row[f"{kind}ms{part}"] for part in ("_10", "", "_90"))
    return f"{median:.2f} ({low:.2f} to {high:.2f})"


def _figures(turn, case, setting, steps):
    """Measures in this process, which has not run TensorFlow yet."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[-setting.cores :])
    tf.config.threading.set_intra_op_parallelism_threads(setting.intra_op)
    tf.config.threading.set_inter_op_parallelism_threads(setting.inter_op)
    if not setting.spins:
        _switch_spinning_off()
    if not setting.busy:
        return case.figures(turn, steps)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as loop:
        os.sched_setaffinity(loop.pid, cores[:1])
        try:
            return case.figures(_TurnWithLoop(turn, loop), steps)
        finally:
            loop.kill()


@dataclasses.dataclass
class _TurnWithLoop:
    """Stops the process `loop` during the turns of other processes."""

    turn: own_process.Turn
    loop: subprocess.Popen

    def pass_on(self):
        self.loop.send_signal(signal.SIGSTOP)
        self.turn.pass_on()
        self.loop.send_signal(signal.SIGCONT)


def _switch_spinning_off():
    context = importlib.import_module("tensorflow.python.eager.context").Context
    configured = context.config.fget

    def config(self):
        result = configured(self)
        result.experimental.disable_thread_spinning = True
        return result

    context.config = property(config)


def _parser():
    parser = new_parser("speed.threads", __doc__)
    add = parser.add_argument
    add("--method", choices=METHODS, default="ours")
    add("--num-classes", type=int, default=1_000_000)
    add("--steps", type=int, default=300)
    add("--steps-per-turn", type=int, default=15)
    add("--json", help="file for the figures")
    return parser


if __name__ == "__main__":
    main()
