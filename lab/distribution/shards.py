"""`python -m lab.distribution.shards`: time and memory of a step with sharded classes.

Runs the same training step with one shard, with shards in one process, and with the same number
of shards on servers, which are processes of this machine. Reports milliseconds per step in
plain `fit` (medians over steps after a warm-up, in turns), the ratio to one shard, and the
memory of the trainer and of each server. All share the cores of one machine. So the servers
show the cost of the split, not the gain of several machines. Labels are uniform, which gives
the most distinct rows.
"""

import pathlib

import numpy as np

import tf_largeout as tflo
from benchmarks.harness import machine, own_process
from benchmarks.harness.files import write_json
from benchmarks.harness.step_case import StepTimes, dense_task
from benchmarks.harness.step_clock import WARM_UP, StepClock
from lab.distribution import step_turns
from lab.shared.command_line import new_parser
from tf_largeout.distribute.local_servers import local_servers


def main(arguments=None):
    """Measures what the command line asks for and returns the report."""
    options = _parser().parse_args(arguments)
    variants = {
        "one shard": (1, 0),
        f"{options.shards} shards, one process": (options.shards, 0),
        f"{options.shards} shards on servers": (options.shards, options.shards),
    }
    runs = {title: [] for title in variants}
    for _ in range(options.rounds):
        for title, (num_shards, num_servers) in variants.items():
            runs[title].append(_run(options, num_shards, num_servers))
            print(f"{title}: {runs[title][-1]['ms']:.2f} ms", flush=True)
    rows = [{"title": title, **step_turns.middle(of_title)} for title, of_title in runs.items()]
    report = {"machine": machine.describe(), "shape": vars(options), "rows": rows}
    if options.json:
        write_json(options.json, report)
    print(table(rows))
    return report


def _run(options, num_shards, num_servers):
    """Measures a new trainer with new servers."""
    with local_servers(num_servers) as servers:
        addresses = [server.address for server in servers]
        figures = own_process.call(train, options, num_shards, addresses)
        figures["server_mb"] = [_held_mb(server.pid) for server in servers]
    return figures


def train(options, num_shards, addresses):
    """Trains in this process; returns the time of a step and the memory of the process."""
    machine.use("cpu")
    if addresses:
        tflo.distribute.connect(addresses)
    task = dense_task(options.num_classes, options.dim, options.batch_size)
    model = step_turns.compiled_model(options, options.num_classes, num_shards)
    clock = StepClock(options.steps, options.seconds)
    epoch = {"steps_per_epoch": options.steps + WARM_UP, "verbose": 0, "shuffle": False}
    model.fit(task.train, callbacks=[StepTimes(clock)], **epoch)
    return {
        "ms": float(np.median(clock.milliseconds)),
        "steps": len(clock.milliseconds),
        "trainer_mb": machine.peak_mb(),
    }


def _held_mb(pid):
    """Returns the peak memory of a process in MiB."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/{pid}/status does not contain VmHWM, the peak memory.")


def table(rows):
    """Formats the rows as lines of text."""
    width = max(len(row["title"]) for row in rows)
    lines = [f"{'':{width}}  ms / step  to one shard  trainer MiB  servers MiB"]
    for row in rows:
        servers = " ".join(f"{one:,.0f}" for one in row["server_mb"])
        lines.append(
            f"{row['title']:{width}}  {row['ms']:9.2f}  {row['ms'] / rows[0]['ms']:12.2f}"
            f"  {row['trainer_mb']:11,.0f}  {servers:>11}"
        )
    return "\n".join(lines)


def _parser():
    parser = new_parser("distribution.shards", __doc__)
    parser.add_argument("--num-classes", type=int, default=2_000_000)
    parser.add_argument("--shards", type=int, default=2)
    step_turns.add_arguments(parser)
    return parser


if __name__ == "__main__":
    main()
