"""`python -m tf_largeout.benchmarks shards`: what it costs to cut the classes into shards.

The same training step with one shard, with shards in one process, and with as many on servers,
each a process of this machine: milliseconds a step inside plain `fit`, medians over steps after
a warm-up, in turns, and the ratio to one shard; and the memory of the trainer and of each
server. All of them share the cores of one machine, so the servers show what the split costs,
not what machines of their own would gain. Labels are uniform: most distinct rows.
"""

import argparse
import pathlib

import keras
import numpy as np

import tf_largeout as tflo
from tf_largeout.benchmarks import machine, own_process
from tf_largeout.benchmarks.files import write_json
from tf_largeout.benchmarks.step_case import StepTimes, dense_task
from tf_largeout.distribute.local_servers import local_servers

_SAMPLERS = {
    "uniform": tflo.samplers.UniformSampler,
    # It searches from the first step on, which fits the lists, so that all that are timed do.
    "inverted_file": lambda m: tflo.samplers.InvertedFileSampler(m, start_step=0),
}


def main(arguments=None):
    """Measures as the command line says and returns the report."""
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
    rows = [{"title": title, **_middle(of_title)} for title, of_title in runs.items()]
    report = {"machine": machine.describe(), "shape": vars(options), "rows": rows}
    if options.json:
        write_json(options.json, report)
    print(table(rows))
    return report


def _run(options, num_shards, num_servers):
    """The figures of a fresh trainer, with fresh servers."""
    with local_servers(num_servers) as servers:
        addresses = [server.address for server in servers]
        figures = own_process.call(train, options, num_shards, addresses)
        figures["server_mb"] = [_held_mb(server.pid) for server in servers]
    return figures


def train(options, num_shards, addresses):
    """Trains in this process and returns the step's time and the memory of the process."""
    machine.use("cpu")
    if addresses:
        tflo.distribute.connect(addresses)
    task = dense_task(options.num_classes, options.dim, options.batch_size)
    model = keras.Sequential(
        [
            keras.Input([options.dim]),
            keras.layers.Dense(options.dim),
            tflo.layers.LargeOutput(
                options.num_classes,
                sampler=_SAMPLERS[options.sampler](options.num_sampled),
                num_shards=num_shards,
            ),
        ]
    )
    optimizer = getattr(tflo.optimizers, options.optimizer)()
    model.compile(optimizer, tflo.losses.SampledSoftmaxLoss())
    times = StepTimes(options.steps, options.seconds)
    epoch = {"steps_per_epoch": options.steps + 5, "verbose": 0, "shuffle": False}
    model.fit(task.train, callbacks=[times], **epoch)
    return {
        "ms": float(np.median(times.milliseconds)),
        "steps": len(times.milliseconds),
        "trainer_mb": machine.peak_mb(),
    }


def _held_mb(pid):
    """The most memory that a process has held, in MiB."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/{pid}/status says nothing of memory.")


def _middle(runs):
    """The run of median time, with the times of all."""
    ordered = sorted(runs, key=lambda run: run["ms"])
    return {**ordered[len(ordered) // 2], "all_ms": [run["ms"] for run in runs]}


def table(rows):
    """The rows as lines of text."""
    width = max(len(row["title"]) for row in rows)
    lines = [f"{'':{width}}  ms a step  to one shard  trainer MiB  servers MiB"]
    for row in rows:
        servers = " ".join(f"{one:,.0f}" for one in row["server_mb"])
        lines.append(
            f"{row['title']:{width}}  {row['ms']:9.2f}  {row['ms'] / rows[0]['ms']:12.2f}"
            f"  {row['trainer_mb']:11,.0f}  {servers:>11}"
        )
    return "\n".join(lines)


def _parser():
    parser = argparse.ArgumentParser("python -m tf_largeout.benchmarks shards")
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--num-classes", type=int, default=2_000_000)
    add("--dim", type=int, default=128)
    add("--batch-size", type=int, default=256)
    add("--num-sampled", type=int, default=1024)
    optimizers = [name for name in vars(tflo.optimizers) if name.startswith(("Lazy", "Row"))]
    add("--optimizer", choices=optimizers, default="LazyAdam")
    add("--sampler", choices=_SAMPLERS, default="uniform")
    add("--shards", type=int, default=2)
    add("--steps", type=int, default=60, help="measured steps at most")
    add("--seconds", type=float, default=15.0, help="measured time of a run at most")
    add("--rounds", type=int, default=3, help="turns of all three")
    add("--json", help="file for the figures")
    return parser
