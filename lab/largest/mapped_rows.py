"""`python -m lab.largest.mapped_rows`: class rows in a memory-mapped file larger than memory.

Does what a training step does with rows of width 64 in bfloat16: reads the rows of 256 labels
and 1,024 negatives, waits as long as a step computes, updates the state of row-wise Adagrad (4
bytes per row, in memory) and writes the rows back. The rows are in a file that the process maps
into its memory. Labels follow Zipf's law with exponent 1.

`--limit-mib` sets how much of the file may be in memory. It needs Linux with a memory cgroup of
version 1 at /sys/fs/cgroup/memory, and root. The program creates a cgroup below this folder,
and removes it at the end. The limit holds for the pages of the file only, because the process
enters the cgroup when it has allocated everything else. Without `--limit-mib`, the file must
fit in memory. Rows of other limits in the file of `--json` stay.

Times are wall times without the time in which the process waited for a core, because other
programs may use the cores.
"""

import contextlib
import json
import mmap
import os
import pathlib
import resource
import time

import numpy as np

from benchmarks.harness import machine, own_process
from benchmarks.harness.files import write_json
from lab.shared.command_line import new_parser

_CGROUPS = pathlib.Path("/sys/fs/cgroup/memory")
_DIM = 64
_ROW_BYTES = 2 * _DIM
_LABELS, _NEGATIVES = 256, 1024
_BLOCK = 8 << 20
_FIELDS = "mib_limit", "order", "negatives", "prefetched"


def main(arguments=None):
    """Measures all limits of the command line and returns the report."""
    options = _parser().parse_args(arguments)
    file = pathlib.Path(options.file)
    report = {"machine": machine.describe(), "file_mib": options.file_mib}
    limits = options.limit_mib or [None]
    report |= {"compute_ms": options.compute_ms, "rows": _kept_rows(options.json, limits)}
    try:
        create(file, options.file_mib << 20)
        report["disk"] = disk_latency(file)
        for limit in limits:
            with memory_cgroup(limit) as group:
                report["rows"] += own_process.call(measure_all, limit, group, options)
            write_json(options.json, report)
    finally:
        file.unlink(missing_ok=True)
    return report


def _kept_rows(path, limits):
    path = pathlib.Path(path)
    rows = json.loads(path.read_text())["rows"] if path.exists() else []
    return [row for row in rows if row["mib_limit"] not in limits]


def create(path, size):
    """Writes a file of random rows."""
    rows = np.random.default_rng(0).standard_normal(min(size, _BLOCK) // 4, "float32")
    block = (rows.view("uint32") >> 16).astype("uint16").tobytes() * 2
    with open(path, "xb") as file:
        for _ in range(0, size, len(block)):
            file.write(block)
        file.truncate(size)
        os.fsync(file.fileno())


@contextlib.contextmanager
def memory_cgroup(mib):
    """Context with a new memory cgroup; None without a limit.

    Raises:
        SystemExit: If this process cannot create memory cgroups of version 1.
    """
    if mib is None:
        yield None
        return
    group = _CGROUPS / f"mapped_rows_{os.getpid()}"
    try:
        if not (_CGROUPS / "memory.limit_in_bytes").exists():
            raise FileNotFoundError(f"{_CGROUPS} is not a memory cgroup of version 1")
        group.mkdir()
    except OSError as error:
        raise SystemExit(
            f"--limit-mib needs a Linux memory cgroup of version 1, and root: {error}. Without "
            "--limit-mib, the program runs without a limit."
        ) from error
    try:
        (group / "memory.limit_in_bytes").write_text(str(mib << 20))
        yield group
    finally:
        group.rmdir()


def disk_latency(path, reads=2000):
    """Returns microseconds per read of 4 KiB: one at a time, and all requested at once."""
    pages = path.stat().st_size // mmap.PAGESIZE
    places = np.random.default_rng(1).permutation(pages)[: 2 * reads] * mmap.PAGESIZE
    one_by_one, together = places[:reads].tolist(), places[reads:].tolist()
    with _mapped(path) as (file, mapping):
        start = time.perf_counter()
        for place in one_by_one:
            os.pread(file, 64, place)
        alone = time.perf_counter() - start
        start = time.perf_counter()
        for place in together:
            mapping.madvise(mmap.MADV_WILLNEED, place, mmap.PAGESIZE)
        for place in together:
            os.pread(file, 64, place)
        at_once = time.perf_counter() - start
    return {
        "us_per_read": 1e6 * alone / max(len(one_by_one), 1),
        "us_per_read_of_many": 1e6 * at_once / max(len(together), 1),
    }


def measure_all(limit, group, options):
    """Measures all streams with one limit, in a process that stays in its cgroup."""
    num_rows = (options.file_mib << 20) // _ROW_BYTES
    random_order = np.random.default_rng(2).permutation(num_rows).astype("int32")
    slots = np.full(num_rows, 0.1, "float32")
    if group:
        (group / "cgroup.procs").write_text(str(os.getpid()))
    found = []
    for order in ("by_frequency", "random"):
        for negatives in ("log_uniform", "uniform"):
            for prefetched in (False, True):
                ids_of_rank = random_order if order == "random" else None
                draw = _Draw(num_rows, ids_of_rank, negatives == "uniform")
                row = (limit, order, negatives, prefetched)
                found.append(dict(zip(_FIELDS, row, strict=True)))
                found[-1] |= measure(draw, slots, prefetched, limit, options)
                print(found[-1], flush=True)
    return found


def measure(draw, slots, prefetched, limit, options):
    """Steps until reads and faults per step are constant, then measures. Returns figures."""
    path = pathlib.Path(options.file)
    pages_in_memory = min(limit or options.file_mib, options.file_mib) << 20
    pages_in_memory //= mmap.PAGESIZE
    with _mapped(path) as (file, mapping):
        _read_backwards(file, path.stat().st_size)
        steps = _Steps(mapping, draw, slots, prefetched, options.compute_ms / 1e3)
        start, read, before = time.perf_counter(), 0.0, np.array([-1.0, -1.0])
        while time.perf_counter() - start < options.warm_up_seconds:
            window = steps.run(options.window, wait=False)
            rates = np.array([window["reads"], window["minor_faults"]])
            read += rates[0] * options.window
            # All pages in memory have been replaced, so some are written before a read.
            replaced = rates[0] < 1 or read > pages_in_memory
            if replaced and np.all(np.abs(rates - before) <= 0.05 * before + 1):
                break
            before = rates
        found = {"warm_up_seconds": time.perf_counter() - start}
        steps.run(options.window)
        return found | steps.run(options.steps)


class _Draw:
    """Draws the ids of a step: `[1280]` int64, labels first."""

    def __init__(self, num_rows, ids_of_rank, uniform):
        self._rows, self._ids_of_rank, self._uniform = num_rows, ids_of_rank, uniform
        self._random = np.random.default_rng(3)

    def __call__(self):
        labels = self._ranks(_LABELS)
        if self._ids_of_rank is not None:
            labels = self._ids_of_rank[labels]
        if self._uniform:
            negatives = self._random.integers(self._rows, size=_NEGATIVES)
        else:
            negatives = self._ranks(_NEGATIVES)
        return np.concatenate([labels, negatives])

    def _ranks(self, count):
        """Rank k has the probability log((k + 2) / (k + 1)) / log(num_rows + 1)."""
        draws = np.exp(self._random.random(count) * np.log(self._rows + 1))
        return np.minimum(draws.astype("int64") - 1, self._rows - 1)


class _Steps:
    def __init__(self, mapping, draw, slots, prefetched, compute_seconds):
        self._table = np.frombuffer(mapping, "uint16").reshape(-1, _DIM)
        self._mapping, self._draw, self._slots = mapping, draw, slots
        self._prefetched, self._compute_seconds = prefetched, compute_seconds
        self._gradients = np.random.default_rng(4).standard_normal(
            (_LABELS + _NEGATIVES, _DIM), "float32"
        )
        self._next = draw()

    def run(self, steps, wait=True):
        """Returns milliseconds, page faults and reads from the disk, per step."""
        before, ms = _counters(), []
        for _ in range(steps):
            start = _ms()
            self._step(wait)
            ms.append(_ms() - start)
        changes = {name: value - before[name] for name, value in _counters().items()}
        figures = {name: value / steps for name, value in changes.items()}
        return {"ms": float(np.mean(ms)), "median_ms": float(np.median(ms))} | figures

    def _step(self, wait):
        ids, self._next = self._next, self._draw()
        if self._prefetched:
            self._request(self._next)
        rows = self._table[ids]
        if wait:
            time.sleep(self._compute_seconds)
        rows = (rows.astype("uint32") << 16).view("float32")
        self._slots[ids] += np.square(self._gradients).mean(1)
        rows -= 0.01 * self._gradients / np.sqrt(self._slots[ids])[:, None]
        self._table[ids] = rows.view("uint32") >> 16

    def _request(self, ids):
        """Asks the kernel to read the pages of these rows, and does not wait for them."""
        page = mmap.PAGESIZE
        for place in np.unique(ids * _ROW_BYTES // page).tolist():
            self._mapping.madvise(mmap.MADV_WILLNEED, place * page, page)


def _ms():
    """Returns the time in milliseconds, without the waits of this thread for a core."""
    waited = pathlib.Path("/proc/thread-self/schedstat").read_text().split()[1]
    return (time.perf_counter_ns() - int(waited)) / 1e6


def _counters():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    lines = pathlib.Path("/proc/self/io").read_text().splitlines()
    counts = {name: int(value) for name, value in (line.split(":") for line in lines)}
    return {
        "major_faults": usage.ru_majflt,
        "minor_faults": usage.ru_minflt,
        "reads": counts["read_bytes"] / mmap.PAGESIZE,
        "cpu_ms": 1e3 * time.process_time(),
    }


@contextlib.contextmanager
def _mapped(path):
    """Context with a file and its mapping; at the start, no page of it is in memory."""
    file = os.open(path, os.O_RDWR)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        mapping = mmap.mmap(file, 0)
        mapping.madvise(mmap.MADV_RANDOM)  # otherwise a fault also reads pages near it
        yield file, mapping
    finally:
        os.close(file)


def _read_backwards(file, size):
    """Reads the file, its start last, so that the memory holds the most frequent rows."""
    for place in reversed(range(0, size, _BLOCK)):
        os.pread(file, _BLOCK, place)


def _parser():
    parser = new_parser("largest.mapped_rows", __doc__)
    add = parser.add_argument
    add("--file-mib", type=int, default=2048)
    add("--file", default="mapped_rows.tmp", help="path of the file, removed at the end")
    add("--limit-mib", type=int, nargs="+", help="memory for the file; needs a cgroup and root")
    add("--compute-ms", type=float, default=2.6, help="wait per step (default: steps.json)")
    add("--steps", type=int, default=300)
    add("--window", type=int, default=250, help="steps of which the warm-up compares reads")
    add("--warm-up-seconds", type=float, default=90.0, help="at most")
    add("--json", default="benchmark-results/mapped_rows.json", help="file for the figures")
    return parser


if __name__ == "__main__":
    main()
