"""`python -m lab.distribution.kills`: what is lost when a server or the trainer ends.

Runs two servers and a trainer with a `Backup` after each epoch, all on this machine. In each
epoch but the last it injects a fault: it kills a server or the trainer (SIGKILL) in a step,
while a backup is written or at the start, or it stops a server from writing to its disk. Then
it restarts what ended, until all epochs are done. The run is right if the final weights, slots
and random states equal those of an undisturbed run to the bit.

Seconds: `error`, from the fault to the end of the trainer; `again`, from there to the first
step (servers and trainer start at the same time, so this includes the start of TensorFlow in
two or three processes on these cores). `lost`: repeated steps, those since the last backup.
"""

import random
import statistics
import tempfile
import time

from benchmarks.harness import machine
from benchmarks.harness.files import write_json
from lab.distribution.kill_processes import Processes
from lab.shared.command_line import new_parser

FAULTS = {
    "nothing": None,
    "server, in a step": ("server", "step"),
    "server, in a backup": ("server", "saving"),
    "server, at the start": ("server", "connected"),
    "trainer, in a step": ("trainer", "step"),
    "trainer, in a backup": ("trainer", "saving"),
    "disk full, in a backup": ("disk", "saving"),
}


def main(arguments=None):
    """Injects the faults of the command line and returns the report."""
    options = _parser().parse_args(arguments)
    random.seed(1)
    digest, rows = None, []
    for title in ["nothing", *[one for one in FAULTS if any(w in one for w in options.only)]]:
        with tempfile.TemporaryDirectory() as folder:
            found = _run(FAULTS[title], folder, options)
        digest = digest or found["digest"]
        rows.append({"title": title, **found, "equal": found["digest"] == digest})
        print(line(rows[-1]), flush=True)
        if options.json:
            write_json(
                options.json,
                {"machine": machine.describe(), "shape": vars(options), "rows": rows},
            )
    return rows


def _run(fault, folder, options):
    """Runs one training from its first to its last epoch, with a fault in each but the last."""
    processes = Processes(folder, options.num_classes, options.times + 1)
    faults, end = [], time.monotonic() + options.seconds
    with processes:
        while True:
            is_enough = len(faults) == options.times or time.monotonic() > end
            digest = _train(processes, None if is_enough else fault, faults)
            if digest is not None:
                break
            processes.restore()
    return {"digest": digest, "faults": faults}


def _train(processes, fault, faults):
    """Runs a trainer to the end, which returns the digest, or to a fault: None."""
    seen, steps, began = [], 0, processes.start_trainer()
    strike = None if fault is None else fault[1]
    for words, at in processes.lines():
        seen.append(words[0])
        if words[0] == "digest":
            return words[1]
        if words[0] == "step":
            steps += 1
            if steps == 1 and faults:
                faults[-1]["again"] = at - began
        if words[0] == strike and (strike != "step" or steps > random.randrange(3, 25)):
            strike = None
            moment, steps_of_epoch = processes.strike(fault), words
            seen.append("fault")
    if "fault" not in seen:
        raise RuntimeError(f"The trainer ended without a fault:\n{processes.said()}")
    after = seen[seen.index("fault") :]
    faults.append(
        {
            "error": processes.ended - moment,
            "lost": 0 if "saved" in after else _steps_since_backup(seen),
            "at": " ".join(steps_of_epoch),
            "finished": "saved" in after,
            "named": processes.is_named(),
        }
    )
    return None


def _steps_since_backup(seen):
    last = max((place for place, word in enumerate(seen) if word == "saved"), default=0)
    return seen[last:].count("step")


def line(row):
    """Formats a row as text."""
    faults = row["faults"]
    equal = "equal to the bit" if row["equal"] else "NOT EQUAL"
    if not faults:
        return f"{row['title']:24} {equal}"

    def of(name):
        values = [one[name] for one in faults if name in one]
        middle = statistics.median(values)
        return f"{name} {middle:5.1f} ({min(values):.1f} to {max(values):.1f})"

    named = sum(one["named"] for one in faults)
    return (
        f"{row['title']:24} {len(faults)} times, {equal}, {of('error')}, {of('again')}, "
        f"{of('lost')}, named {named}"
    )


def _parser():
    parser = new_parser("distribution.kills", __doc__)
    add = parser.add_argument
    add("--times", type=int, default=10, help="how often each")
    add("--seconds", type=float, default=600.0, help="and for how long each at most")
    add("--num-classes", type=int, default=200_000, help="of width 64")
    add("--only", nargs="*", default=["in a", "at the"], help="parts of the faults' names")
    add("--json", help="file for the figures")
    return parser


if __name__ == "__main__":
    main()
