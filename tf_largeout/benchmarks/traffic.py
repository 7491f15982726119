"""`python -m tf_largeout.benchmarks traffic`: bytes of a step between trainer and servers.

Counts, in a network of its own (`unshare`, `ip` and `tc` of Linux), what goes over the wire in
a step of plain `fit` with one label a row and shared negatives, headers included, beside what
the formula says:

    a step = 8 dim (K batch + m) + 8 (3 K batch + 2 m) bytes

with K servers, one shard each, and m negatives: to each server the features, and back the
gradient of them; of each negative the row, and back the gradient of it; the rest is ids, logits
and biases. The number of classes is not in it. `--megabits` limits the rate of that network,
both ways and all servers together; 0 is no limit.
"""

import argparse
import itertools
import pathlib
import shlex
import subprocess
import sys
import time

import keras

from tf_largeout.benchmarks import machine, own_process
from tf_largeout.benchmarks.files import write_json
from tf_largeout.benchmarks.step_case import dense_task
from tf_largeout.distribute import connect
from tf_largeout.distribute.local_servers import local_servers
from tf_largeout.layers import LargeOutput
from tf_largeout.losses import SampledSoftmaxLoss
from tf_largeout.optimizers import LazyAdam
from tf_largeout.samplers import UniformSampler

_UP = "ip link set lo up && exec"
_WARM_UP = 5


def main(arguments=None):
    """Measures as the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    if not options.inside:
        module = [sys.executable, "-m", "tf_largeout.benchmarks", "traffic", "--inside"]
        command = f"{_UP} {shlex.join([*module, *(arguments or [])])}"
        subprocess.run(["unshare", "-rn", "sh", "-c", command], check=True)
        return None
    rows = []
    for rate in options.megabits:
        _limit(rate)
        for case in itertools.product(options.servers, options.batch_sizes, options.sampled):
            rows.append({"megabits": rate, **_run(options, *case)})
            print(line(rows[-1]), flush=True)
    if options.json:
        shape = vars(options)
        write_json(options.json, {"machine": machine.describe(), "shape": shape, "rows": rows})
    return rows


def formula(dim, num_servers, batch_size, num_sampled):
    """Bytes of a step, both ways and all servers together."""
    features = num_servers * batch_size
    return 8 * dim * (features + num_sampled) + 8 * (3 * features + 2 * num_sampled)


def _run(options, num_servers, batch_size, num_sampled):
    with local_servers(num_servers) as servers:
        addresses = [server.address for server in servers]
        found = own_process.call(train, options, addresses, batch_size, num_sampled)
    case = {"servers": num_servers, "batch_size": batch_size, "num_sampled": num_sampled}
    return {**case, **found, "formula": formula(options.dim, *case.values())}


def train(options, addresses, batch_size, num_sampled):
    """Trains in this process and returns bytes and milliseconds of a step."""
    machine.use("cpu")
    connect(addresses, timeout_s=60)
    task = dense_task(options.num_classes, options.dim, batch_size)
    head = LargeOutput(
        options.num_classes, UniformSampler(num_sampled), num_shards=len(addresses)
    )
    model = keras.Sequential(
        [keras.Input([options.dim]), keras.layers.Dense(options.dim), head]
    )
    model.compile(LazyAdam(), SampledSoftmaxLoss())
    counts = []

    def count(batch, logs):
        if batch in (_WARM_UP, _WARM_UP + options.steps):
            counts.append((_bytes(), time.perf_counter()))

    model.fit(
        task.train,
        steps_per_epoch=_WARM_UP + options.steps + 1,
        shuffle=False,
        callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=count)],
        verbose=0,
    )
    (before, start), (after, end) = counts
    steps = options.steps
    return {"bytes": (after - before) / steps, "ms": 1000 * (end - start) / steps}


def _bytes():
    """All that came over the network of this machine with itself so far."""
    for text in pathlib.Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = text.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[0])
    raise RuntimeError("/proc/net/dev has no 'lo'.")


def _limit(megabits):
    subprocess.run(
        ["tc", "qdisc", "del", "dev", "lo", "root"], check=False, stderr=subprocess.DEVNULL
    )
    if megabits:
        rate = ["rate", f"{megabits}mbit", "burst", "256kb", "latency", "200ms"]
        subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "tbf", *rate], check=True)


def line(row):
    """A row as text."""
    rate = f"{row['megabits']} Mbit/s" if row["megabits"] else "no limit"
    return (
        f"{row['servers']} servers, batch {row['batch_size']}, m {row['num_sampled']}, {rate}: "
        f"{row['bytes'] / 1e6:.3f} MB a step, formula {row['formula'] / 1e6:.3f} "
        f"(ratio {row['bytes'] / row['formula']:.2f}), {row['ms']:.1f} ms"
    )


def _parser():
    parser = argparse.ArgumentParser("python -m tf_largeout.benchmarks traffic")
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--num-classes", type=int, default=200_000)
    add("--dim", type=int, default=128)
    add("--servers", type=int, nargs="+", default=[2, 4])
    add("--batch-sizes", type=int, nargs="+", default=[256])
    add("--sampled", type=int, nargs="+", default=[1024])
    add("--megabits", type=int, nargs="+", default=[0])
    add("--steps", type=int, default=40)
    add("--inside", action="store_true", help=argparse.SUPPRESS)
    add("--json", help="file for the figures")
    return parser
