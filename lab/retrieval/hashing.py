"""`python -m lab.retrieval.hashing`: rows per second of each locality-sensitive hash.

Hashes random class embeddings into all tables, as a build of hash tables does, on all cores.
The limit is memory bandwidth: reading the rows and writing the codes once.
"""

import tensorflow as tf
from tqdm import tqdm

from benchmarks.harness import machine
from benchmarks.harness.files import write_json
from lab.shared.command_line import new_parser
from tf_largeout.papers.lsh import hash_ops

KINDS = ("simhash", "wta", "dwta")
_PART = 1 << 16  # rows per call; calls reuse the memory of the codes, as a table does


def main(arguments=None):
    """Measures the hashes of the command line and returns the report."""
    options = _parser().parse_args(arguments)
    shape = {
        name: getattr(options, name) for name in ("num_rows", "dim", "num_hashes", "num_tables")
    }
    bandwidth = machine.memory_bandwidth()
    limit_ms = 4e-6 * options.num_rows * (options.dim + options.num_tables) / bandwidth
    sizes = [min(_PART, options.num_rows - i) for i in range(0, options.num_rows, _PART)]
    parts = [tf.random.stateless_normal([size, options.dim], seed=[1, 2]) for size in sizes]
    rows = []
    for kind in tqdm(options.kinds, desc="hashing", unit="kind"):
        milliseconds = measure(kind, parts, options)
        figures = {"ms": milliseconds, "rows_per_s": 1e3 * options.num_rows / milliseconds}
        rows.append({"kind": kind, **figures, "share_of_limit": limit_ms / milliseconds})
        tqdm.write(_line(rows[-1]))
    report = {"machine": machine.describe(), "gb_per_s": bandwidth, **shape}
    report |= {"limit_ms": limit_ms, "rows": rows}
    if options.json:
        write_json(options.json, report)
    return report


def measure(kind, parts, options):
    """Returns the milliseconds to hash all `parts`, in the fastest of some runs."""
    family = kind, options.dim, options.num_hashes, options.num_tables
    functions = hash_ops.hash_functions(*family, seed=[3, 4])

    def hash_all():
        for vectors in parts:
            hash_ops.lsh_hash(
                vectors, functions, kind, options.num_hashes, options.num_tables, options.bits
            )

    return 1e3 * min(machine.seconds_of_calls(hash_all, options.steps))


def _line(row):
    speed = f"{row['rows_per_s'] / 1e6:6.2f} M rows/s, {row['ms']:8.1f} ms"
    return f"{row['kind']:8} {speed}, {row['share_of_limit']:.0%} of the limit"


def _parser():
    parser = new_parser("retrieval.hashing", __doc__)
    parser.add_argument("--num_rows", type=int, default=670_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--num_hashes", type=int, default=6)
    parser.add_argument("--num_tables", type=int, default=50)
    parser.add_argument("--bits", type=int, default=16)
    parser.add_argument("--steps", type=int, default=10, help="runs, of which the fastest")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--json", help="file for the figures")
    return parser


if __name__ == "__main__":
    main()
