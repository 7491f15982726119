"""`python -m lab.distribution.traffic`: bytes and round trips of a step with servers.

Counts the bytes that a step of plain `fit` sends, headers included, in a separate network
namespace (`unshare`, `ip` and `tc` of Linux), with one label per example and shared negatives.
Compares them with this formula:

    bytes per step = 8 dim (K batch + m) + 8 (3 K batch + 2 m)

for K servers with one shard each and m negatives. Each server receives the features and returns
their gradient. Each negative is sent as a row and returned as a gradient. The rest is ids,
logits and biases. The number of classes does not occur.

`--megabits` limits the rate of that network; 0 for no limit. `--delay-ms` is the delay of a
packet each way. The servers are then in a separate network behind a relay (`relay.py`), and the
limit holds for each way. `none` is the loopback device, where a limit holds for the sum of both
ways. With two or more delays above 0, the program also reports how many round trips a step
waits for: the additional milliseconds per step for each additional millisecond per round trip.
"""

import argparse
import contextlib
import functools
import itertools
import shlex
import subprocess
import sys

import numpy as np

from benchmarks.harness import machine, own_process
from benchmarks.harness.files import write_json
from lab.distribution import network, traffic_run
from lab.shared.command_line import new_parser
from tf_largeout.distribute.local_servers import local_servers

_UP = "ip link set lo up && exec"
_LONGEST_DELAY_MS = 1_000
_CASE = ("megabits", "servers", "batch_size", "num_sampled", "steps_per_execution")


def main(arguments=None):
    """Measures what the command line asks for, in a separate network, and prints it."""
    options = _parser().parse_args(arguments)
    if not options.inside:
        _run_in_own_network(sys.argv[1:] if arguments is None else arguments)
        return
    try:
        rows = list(_measured(options))
    except OSError as error:  # from the network
        raise SystemExit(f"error: {error}") from error
    waits = waits_of(rows)
    for case in waits:
        print(waits_line(case))
    if options.json:
        report = {"machine": machine.describe(), "shape": vars(options)}
        write_json(options.json, {**report, "rows": rows, "waits": waits})


def _run_in_own_network(arguments):
    module = [sys.executable, "-m", "lab.distribution.traffic", "--inside"]
    command = f"{_UP} {shlex.join([*module, *arguments])}"
    status = subprocess.run(["unshare", "-rn", "sh", "-c", command], check=False).returncode
    if status:
        raise SystemExit(status)  # the command has printed the reason


def formula(dim, num_servers, batch_size, num_sampled):
    """Returns the bytes per step, in both directions, for all servers together."""
    features = num_servers * batch_size
    return 8 * dim * (features + num_sampled) + 8 * (3 * features + 2 * num_sampled)


def waits_of(rows):
    """Returns how many round trips a step waits for: the slope of `ms` over `round_trip_ms`.

    Rows without a delay are left out. Such a step takes as long as the work of all processes,
    and a delay hides part of it.

    Returns:
        A dict for each case that was measured with two or more delays: the case as in its rows,
        and `round_trips`.
    """
    cases = {}
    for row in rows:
        if row["delay_ms"]:
            cases.setdefault(tuple(row[name] for name in _CASE), []).append(row)
    return [
        {**dict(zip(_CASE, case, strict=True)), "round_trips": _slope(measured)}
        for case, measured in cases.items()
        if len({row["delay_ms"] for row in measured}) > 1
    ]


def _slope(rows):
    trips, steps = ([row[name] for row in rows] for name in ("round_trip_ms", "ms"))
    slope, _ = np.polyfit(trips, steps, 1)
    return float(slope)


def _measured(options):
    """Measures each case, prints it, and yields its row."""
    for delay, *case in itertools.product(
        options.delay_ms,
        options.megabits,
        options.servers,
        options.batch_sizes,
        options.sampled,
        options.steps_per_execution,
    ):
        row = {"delay_ms": delay, **dict(zip(_CASE, case, strict=True))}
        row |= _run(options, row)
        print(line(row), flush=True)
        yield row


def _run(options, case):
    with (
        network.opened(case["delay_ms"], case["megabits"]) as wire,
        local_servers(case["servers"], wire.host, wire.at_servers) as servers,
    ):
        addresses = [server.address for server in servers]
        round_trip_ms = wire.round_trip_ms()
        found = own_process.call(traffic_run.train, options, case, wire, addresses)
    sizes = [case[name] for name in ("servers", "batch_size", "num_sampled")]
    expected = formula(options.dim, *sizes)
    return {**found, "round_trip_ms": round_trip_ms, "formula": expected}


def line(row):
    """Formats a row as text."""
    delay = row["delay_ms"]
    way = "loopback" if delay is None else f"{delay:g} ms each way"
    return (
        f"{_title(row)}, {way} (round trip {row['round_trip_ms']:.3f} ms): "
        f"{row['bytes'] / 1e6:.3f} MB per step, formula {row['formula'] / 1e6:.3f} "
        f"(ratio {row['bytes'] / row['formula']:.2f}), {row['ms']:.1f} ms"
    )


def waits_line(case):
    """Formats a result of `waits_of` as text."""
    return f"{_title(case)}: a step waits for {case['round_trips']:.2f} round trips"


def _title(case):
    rate = f"{case['megabits']} Mbit/s" if case["megabits"] else "no limit"
    at_once = case["steps_per_execution"]
    calls = f", {at_once} steps a call" if at_once > 1 else ""
    return (
        f"{case['servers']} servers, batch {case['batch_size']}, m {case['num_sampled']}, "
        f"{rate}{calls}"
    )


def _parser():
    parser = new_parser("distribution.traffic", __doc__)
    add, count = parser.add_argument, functools.partial(_whole_number, 1)
    add("--num-classes", type=count, default=200_000)
    add("--dim", type=count, default=128)
    add("--servers", type=count, nargs="+", default=[2, 4])
    add("--batch-sizes", type=count, nargs="+", default=[256])
    add("--sampled", type=count, nargs="+", default=[1024])
    add("--steps-per-execution", type=count, nargs="+", default=[1], help="of `compile`")
    rate = functools.partial(_whole_number, 0)
    add("--megabits", type=rate, nargs="+", default=[0], help="Mbit/s; 0 for no limit")
    add("--delay-ms", type=_delay, nargs="+", default=[None], help="each way, or none")
    add("--steps", type=count, default=40, help="that are counted, at least")
    add("--inside", action="store_true", help=argparse.SUPPRESS)
    add("--json", help="file for the figures")
    return parser


def _whole_number(least, text):
    if text.isdecimal() and int(text) >= least:
        return int(text)
    raise argparse.ArgumentTypeError(f"expected a whole number from {least} on; got {text!r}")


def _delay(text):
    """Parses milliseconds, or None for "none"."""
    if text == "none":
        return None
    with contextlib.suppress(ValueError):
        if 0 <= float(text) <= _LONGEST_DELAY_MS:
            return float(text)
    raise argparse.ArgumentTypeError(
        f"expected `none` or milliseconds from 0 to {_LONGEST_DELAY_MS}; got {text!r}"
    )


if __name__ == "__main__":
    main()
