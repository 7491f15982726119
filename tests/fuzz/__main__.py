"""Makes random calls of all ops in watched processes: `python -m tests.fuzz`.

A call is determined by the op, the seed and its number. Calls that kill their process, do not
end or return a wrong result are reported. To repeat one:

    python -m tests.fuzz --op lsh_query --seed 1 --first 18 --calls 1 --print-calls

If memory is short, a call also depends on the previous calls of its process. Repeat such calls
from `--first 0`.
"""

import argparse
import faulthandler
import json
import os
import pathlib
import re
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

from tests.fuzz.calls import Batch
from tests.fuzz.table import cases
from tests.fuzz.watched import WatchedBatch


def main():
    """Returns the exit status: 1 if a call failed, or too few calls of an op were answered."""
    options = _options()
    faulthandler.enable()
    start = time.monotonic()
    done = run(options)
    failures = [failure for one in done for failure in one.failures]
    shallow = [one.batch.op for one in done if not is_deep(one)]
    total = sum(sum(one.counts) for one in done)
    memory = f"at most {options.memory} MiB per call"
    if options.sanitize:
        memory = f"no limit, {sum(one.short for one in done)} calls ran out of memory"
    print(
        f"{total} calls, {len(failures)} failures, {time.monotonic() - start:.0f} s; {memory}"
    )
    if shallow:
        print(
            f"Less than a fifth of the calls were answered: {shallow}. Draw better arguments."
        )
    if options.json:
        report = [vars(failure) for failure in failures]
        options.json.write_text(json.dumps(report, indent=1))
    return int(bool(failures or shallow))


def run(options):
    """Runs the batches, `options.jobs` at a time, and returns them."""
    table = cases()
    waiting = [
        Batch(
            op,
            options.seed,
            options.first,
            options.first + options.calls,
            0 if options.sanitize else options.memory,
            options.print_calls,
        )
        for op in (options.op or table)
    ]
    running, done = [], []
    while waiting or running:
        while waiting and len(running) < options.jobs:
            batch = waiting.pop(0)
            running.append(WatchedBatch(batch, table[batch.op], options.patience))
        for one in [one for one in running if one.poll()]:
            running.remove(one)
            done.append(one)
            show(one)
        time.sleep(0.05)
    return done


def is_deep(one):
    """Returns whether at least a fifth of the calls passed the argument checks, or few ran."""
    return one.counts[0] * 5 >= sum(one.counts) or sum(one.counts) < 50


def show(one):
    """Prints the outcome of the calls of an op."""
    answered, refused, _ = one.counts
    print(
        f"{one.batch.op:40} {answered:8} answered {refused:8} refused "
        f"{len(one.failures):5} failures",
        flush=True,
    )
    for line in one.printed:
        print(f"  {line}")
    kinds = {}
    for failure in one.failures:
        # Messages that differ only in numbers are of the same kind.
        kinds.setdefault(re.sub(r"[\d.,\s-]+", "", failure.what)[:120], []).append(failure)
    for failure, *others in kinds.values():
        print(f"  --op {failure.op} --seed {failure.seed} --first {failure.call} --calls 1")
        print(f"    {failure.what[:400]}\n    {failure.arguments[:600]}")
        print(f"    and {len(others)} like it", flush=True)


def _options():
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--op", action="append", choices=sorted(cases()), help="default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first call")
    parser.add_argument("--calls", type=int, default=10_000, help="number of calls of each op")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument(
        "--memory",
        type=int,
        default=1024,
        help="MiB of address space that a call may allocate; some calls get 8 to 128",
    )
    parser.add_argument(
        "--sanitize",
        action="store_true",
        help="run with a sanitizer, which limits memory itself",
    )
    parser.add_argument(
        "--patience", type=int, default=120, help="time limit of a call in seconds"
    )
    parser.add_argument(
        "--print-calls", action="store_true", help="print all calls and their messages"
    )
    parser.add_argument("--json", type=pathlib.Path, help="file for the failures")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
