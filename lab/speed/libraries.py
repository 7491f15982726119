"""`python -m lab.speed.libraries`: a training step of this library and of others, in turns.

All train the same model on the same batches: features of a dense layer, and a sampled softmax
over uniform negatives that the batch shares. Measures wall and CPU milliseconds per step with
one and more threads, with AVX2 and with all instructions of the processor. TensorFlow's steps
run in Keras's `fit`; the loops of PyTorch and JAX are written by hand. Each has its own
process; one of them runs at a time.

AVX2 restricts oneDNN, MKL, PyTorch's and XLA's code and our ops. It does not restrict other
operations of TensorFlow. `--python` is the program of an environment with `torch` and `jax`, if
this one has none.
"""

from tqdm import tqdm

from benchmarks.harness import machine
from benchmarks.harness.files import markdown, write_json
from benchmarks.harness.step_case import StepCase, measure_in_turns
from lab.shared.command_line import new_parser

# title: (method, optimizer)
CASES = {
    "tf_largeout, `LazyAdam`": ("ours", "lazy_adam"),
    "JAX, row-sparse Adam by hand": ("jax_sampled_softmax", "row-sparse Adam"),
    "PyTorch, `SparseAdam`": ("torch_sampled_softmax", "SparseAdam"),
    "`tf.nn`, row-sparse Adam by hand": ("tf_nn_sampled_softmax", "row_sparse_adam"),
}
# Measured alone and for fewer steps: it evicts all caches, and would slow the next case down.
SLOW_CASE = {"`tf.nn`, Keras's Adam": ("tf_nn_sampled_softmax", "adam")}
_SLOW_STEPS = 8
INSTRUCTIONS = {
    "AVX2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "LARGEOUT_SIMD_LEVEL": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        # The second option switches YNNPACK off, whose products would use AVX-512.
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2 --xla_cpu_experimental_ynn_fusion_type=",
    },
    "all": {},
}
_FIGURES = ("ms_10", "ms", "ms_90", "cpu_ms_10", "cpu_ms", "cpu_ms_90", "ratio", "cpu_ratio")


def main(arguments=None):
    """Measures what the command line says and returns the report."""
    options = _parser().parse_args(arguments)
    blocks = [(threads, name) for threads in options.threads for name in options.instructions]
    rows = []
    for threads, name in tqdm(blocks, desc="libraries", unit="block"):
        rows += _rows(options, threads, name)
        tqdm.write(table(rows))
    names = ("num_classes", "dim", "batch_size", "num_sampled", "steps")
    shape = {name: getattr(options, name) for name in names}
    report = {"machine": machine.describe(), **shape, "rows": rows}
    if options.json:
        write_json(options.json, report)
    return report


def table(rows):
    """Returns the median milliseconds per step as Markdown, a column for each block."""
    blocks = list(dict.fromkeys(_block(row) for row in rows))
    lines = []
    for title in dict.fromkeys(row["title"] for row in rows):
        cells = {_block(row): _cell(row) for row in rows if row["title"] == title}
        lines.append([title, *(cells[block] for block in blocks)])
    return markdown(["ms per step: wall, CPU", *blocks], lines)


def _block(row):
    threads = "1 thread" if row["threads"] == 1 else f"{row['threads']} threads"
    return f"{row['instructions']}, {threads}"


def _cell(row):
    return "-" if "error" in row else f"{row['ms']:.1f}, {row['cpu_ms']:.1f}"


def _rows(options, threads, instructions):
    """Returns a row for each of `CASES`, measured in turns, and one for `SLOW_CASE`."""
    environment = INSTRUCTIONS[instructions]
    rows = []
    for cases, steps, per_turn in (
        (CASES, options.steps, options.steps_per_turn),
        (SLOW_CASE, min(_SLOW_STEPS, options.steps), 1),
    ):
        measured = measure_in_turns(
            [_case(options, threads, steps, *names) for names in cases.values()],
            per_turn,
            [environment] * len(cases),
        )
        about = {"threads": threads, "instructions": instructions}
        rows += [
            {"title": title, **about, **_kept(row)}
            for title, row in zip(cases, measured, strict=True)
        ]
    return rows


def _case(options, threads, steps, method, optimizer):
    return StepCase(
        method,
        optimizer,
        options.num_classes,
        options.dim,
        options.batch_size,
        options.num_sampled,
        max_steps=steps,
        max_seconds=options.seconds,
        threads=threads,
        python=options.python,
    )


def _kept(row):
    if "error" in row:
        tqdm.write(f"{row['method']}: {row['error']}")
        return {"error": row["error"]}
    kept = {name: round(row[name], 3) for name in _FIGURES if name in row}
    more = {"step_mb": round(row["step_mb"], 1), "steps": row["steps"]}
    return {**kept, **more, "library": row.get("library", "TensorFlow")}


def _parser():
    parser = new_parser("speed.libraries", __doc__)
    add = parser.add_argument
    add("--threads", type=int, nargs="+", default=[1, 2])
    add("--instructions", nargs="+", choices=INSTRUCTIONS, default=list(INSTRUCTIONS))
    add("--num-classes", type=int, default=1_000_000)
    add("--dim", type=int, default=128)
    add("--batch-size", type=int, default=256)
    add("--num-sampled", type=int, default=1024)
    add("--steps", type=int, default=200, help="measured steps of a case at most")
    add("--steps-per-turn", type=int, default=10)
    add("--seconds", type=float, default=30.0, help="measured time of a case at most")
    add("--python", help="program that runs PyTorch and JAX; by default this one")
    add("--json", help="file for the figures")
    return parser


if __name__ == "__main__":
    main()
