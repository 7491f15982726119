"""`python -m benchmarks gpu_check`: training on the first GPU with stock operations.

It needs the CUDA build of TensorFlow, a GPU and its driver, but no nvcc. It trains models on
the CPU and on the GPU, op by op and compiled by XLA, from the same weights and on the same
data. It compares losses, class rows, slots, `evaluate` and `top_k`, and prints one table with
these differences, with times and with memory. It fails if there is no GPU, or if something
differs by more than rounding. Each run has its own process. It takes a few minutes.

`--device CPU:1` tests this program itself: a second CPU device stands in for the GPU.
"""

import contextlib
import dataclasses
import functools
import os
import time

from benchmarks.harness import machine, own_process
from benchmarks.harness.files import new_parser, write_json

MODES = ("op by op", "compiled")
_STEPS_COMPARED = 10
_TOLERANCES = {"losses": 1e-3, "rows": 1e-3, "evaluate": 1e-3, "top_k": 1e-3}


@dataclasses.dataclass(frozen=True)
class Case:
    """A model and its data: features `[n, dim]` around a prototype of each class."""

    title: str
    num_classes: int
    dim: int
    batch_size: int
    num_sampled: int
    sampler: str = "uniform"
    loss: str = "SampledSoftmaxLoss"
    optimizer: str = "LazyAdam"
    timed_steps: int = 50
    modes: tuple[str, ...] = MODES

    def smaller(self):
        """Returns a case for a test of the program."""
        return dataclasses.replace(
            self, num_classes=2000, dim=16, batch_size=32, num_sampled=64, timed_steps=5
        )


CASES = [
    Case("README example, uniform negatives", 100_000, 64, 512, 4096),
    # XLA cannot compile the updates of the lists.
    Case(
        "README example",
        100_000,
        64,
        512,
        4096,
        "inverted_file",
        timed_steps=20,
        modes=MODES[:1],
    ),
    Case("step benchmark", 1_000_000, 128, 256, 1024),
    Case("RowwiseAdagrad", 100_000, 64, 256, 1024, optimizer="RowwiseAdagrad"),
    Case("unigram negatives", 100_000, 64, 256, 1024, sampler="unigram"),
    Case("exact softmax", 100_000, 64, 256, 1, loss="SoftmaxLoss", timed_steps=5),
]


def main(arguments=None):
    """Prints the table; raises a SystemExit if there is no GPU, or if results differ."""
    parser = new_parser("gpu_check", __doc__, has_picture=False)
    parser.add_argument("--device", default="GPU:0", help="GPU:0, or CPU:1 as its stand-in")
    parser.add_argument("--small", action="store_true", help="small models, for tests")
    titles = [case.title for case in CASES]
    parser.add_argument("--models", nargs="+", choices=titles, default=titles, metavar="TITLE")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    options = parser.parse_args(arguments)
    os.environ["LARGEOUT_OPS"] = "stock"
    described = own_process.call(_describe, options.device)
    if "error" in described:
        raise SystemExit(f"gpu_check: {described['error']}")
    cases = [case for case in CASES if case.title in options.models]
    cases = [case.smaller() if options.small else case for case in cases]
    report = {"machine": described, "device": options.device, "results": []}
    print(f"TensorFlow {described['tensorflow']}, {', '.join(described['gpus']) or 'no GPU'}\n")
    print(_HEADER)
    for case in cases:
        reference = _run(case, "CPU:0", "op by op")
        _print_row(case, "CPU", "op by op", reference, {})
        for mode in [one for one in case.modes if one in options.modes]:
            found = _run(case, options.device, mode)
            differences = {}
            if "error" not in reference and "error" not in found:
                differences = compare(found, reference)
            _print_row(case, options.device, mode, found, differences)
            figures = {key: value for key, value in found.items() if key != "compared"}
            report["results"].append(
                {"case": case.title, "mode": mode, "differences": differences, **figures}
            )
    if options.json:
        write_json(options.json, report)
    failed = [one for one in report["results"] if not is_good(one)]
    for one in failed:
        print(f"\n{one['case']}, {one['mode']}: {one.get('error', one['differences'])}")
    if failed:
        raise SystemExit(1)
    print("\nAll results agree.")


def is_good(result):
    """Returns whether a run ended, and its results differ only by rounding."""
    differences = result["differences"]
    return bool(differences) and all(
        differences[name] <= limit for name, limit in _TOLERANCES.items()
    )


def compare(found, reference):
    """Returns the differences of two runs, by name.

    For losses and `evaluate`, the largest relative difference. For rows and slots, the share of
    numbers that differ by more than 1e-3 of the largest: Adam may move a number far if its
    gradient is 0 up to rounding. For `top_k`, the share of ids that differ by more than ties.
    """
    import numpy as np

    ours, theirs = found["compared"], reference["compared"]
    differences = {}
    for name in ("losses", "evaluate"):
        one, other = np.asarray(ours[name]), np.asarray(theirs[name])
        differences[name] = float(np.max(np.abs(one - other) / np.maximum(np.abs(other), 1e-6)))
    shares = []
    for one, other in zip(ours["rows"], theirs["rows"], strict=True):
        limit = 1e-3 * max(float(np.max(np.abs(other))), 1e-12)
        shares.append(float(np.mean(~(np.abs(one - other) <= limit))))
    differences["rows"] = max(shares)
    scores, other_scores = ours["top_k"], theirs["top_k"]
    is_near = np.isclose(scores, other_scores, rtol=1e-3, atol=1e-3)
    differences["top_k"] = float(np.mean(~is_near))
    return differences


def _run(case, device, mode):
    """Runs a case in its own process. An error is a result, with its text."""
    try:
        return own_process.call(functools.partial(measure, case, device, mode))
    except Exception as error:  # the table must say what happened
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}


def _describe(device):
    """Returns what is known of the machine, or an error if it has no such device."""
    import tensorflow as tf

    if device.startswith("GPU") and not tf.config.list_physical_devices("GPU"):
        cuda = "with" if tf.test.is_built_with_cuda() else "without"
        return {
            "error": f"TensorFlow {tf.__version__}, built {cuda} CUDA, finds no GPU. Install "
            "`tensorflow[and-cuda]` and NVIDIA's driver, and check CUDA_VISIBLE_DEVICES."
        }
    return machine.describe()


def measure(case, device, mode):
    """Trains a model on a device of this process; returns what is compared, and figures."""
    scope = _use(device)
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)
    if mode == "compiled":
        from tf_largeout.ops import devices

        devices.why_not_compiled = lambda: None  # which refuses GPUs until this has passed
    with scope:
        x, y = _data(case)
        model = _model(case, x, y, is_compiled=mode == "compiled")
        if mode == "compiled" and not model.jit_compile:
            raise RuntimeError("jit_compile=True was refused")
        batch = x[: case.batch_size], y[: case.batch_size]
        start = time.perf_counter()
        losses = [_loss(model, batch)]
        first_seconds = time.perf_counter() - start
        for number in range(1, _STEPS_COMPARED):
            begin = number * case.batch_size
            part = slice(begin, begin + case.batch_size)
            losses.append(_loss(model, (x[part], y[part])))
        compared = {"losses": losses, **_results(model, x, y)}
        step_ms = _time_steps(model, case, x, y)
        memory = _memory_mb(device)
    return {
        "compared": compared,
        "first_step_s": first_seconds,
        "step_ms": step_ms,
        "memory_mb": memory,
    }


def _use(device):
    """Selects the device for this process; returns the scope in which models are on it."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")[: 1 if device.startswith("GPU") else 0]
    tf.config.set_visible_devices(gpus, "GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    scope = contextlib.ExitStack()
    if not gpus and device != "CPU:0":
        cpu = tf.config.list_physical_devices("CPU")[0]
        two = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(cpu, two)
    if device != "CPU:0":
        from tf_largeout.ops import places

        if not gpus:
            scope.enter_context(places.stand_in(device))
        scope.enter_context(tf.device(device))
    return scope


def _data(case):
    import numpy as np

    rng = np.random.default_rng(0)
    count = case.batch_size * max(case.timed_steps, _STEPS_COMPARED)
    y = rng.integers(0, case.num_classes, count)
    prototypes = rng.standard_normal((4096, case.dim), dtype="float32")
    noise = rng.standard_normal((count, case.dim), dtype="float32")
    return prototypes[y % 4096] + 0.8 * noise, y


def _model(case, x, y, is_compiled):
    import keras
    import numpy as np

    import tf_largeout as tflo

    samplers = {
        "uniform": lambda: tflo.samplers.UniformSampler(case.num_sampled, seed=1),
        "unigram": lambda: tflo.samplers.UnigramSampler(
            case.num_sampled, np.bincount(y, minlength=case.num_classes) + 1, seed=1
        ),
        "inverted_file": lambda: tflo.samplers.InvertedFileSampler(
            case.num_sampled, start_step=0, seed=1
        ),
    }
    head = tflo.layers.LargeOutput(case.num_classes, samplers[case.sampler]())
    model = keras.Sequential([keras.Input([case.dim]), keras.layers.Dense(case.dim), head])
    rng = np.random.default_rng(1)  # the initializers of two devices differ
    for one in model.trainable_variables:
        one.assign(0.05 * rng.standard_normal(one.shape, dtype="float32"))
    optimizer = getattr(tflo.optimizers, case.optimizer)(3e-3)
    loss = getattr(tflo.losses, case.loss)()
    model.compile(optimizer, loss, jit_compile=is_compiled)
    return model


def _loss(model, batch):
    model.reset_metrics()
    return float(model.train_on_batch(*batch))


def _results(model, x, y):
    import numpy as np

    head = model.layers[-1]
    ids = np.unique(y[:4096])
    slots = [
        one.numpy()[ids]
        for one in model.optimizer.variables
        if one.shape[:1] == (head.num_classes,) and str(one.dtype) == "float32"
    ]
    features = model.layers[0](x[:256])
    return {
        "rows": [head.embeddings.numpy()[ids], *slots, model.layers[0].kernel.numpy()],
        "evaluate": [model.evaluate(x[:256], y[:256], batch_size=256, verbose=0)],
        "top_k": head.top_k(features, 10)[0].numpy(),
    }


def _time_steps(model, case, x, y):
    """Returns the milliseconds of a step in `fit`, after a warm-up."""
    count = case.timed_steps * case.batch_size
    options = {"batch_size": case.batch_size, "shuffle": False, "verbose": 0}
    model.fit(x[: 3 * case.batch_size], y[: 3 * case.batch_size], **options)
    machine.finish()
    start = time.perf_counter()
    model.fit(x[:count], y[:count], **options)
    machine.finish()
    return (time.perf_counter() - start) / case.timed_steps * 1e3


def _memory_mb(device):
    return machine.peak_mb("gpu" if device.startswith("GPU") else "cpu")


_COLUMNS = ["model", "device", "mode", "first step, s", "step, ms", "memory, MiB", *_TOLERANCES]
_HEADER = f"| {' | '.join(_COLUMNS)} |\n|{'---|' * 3}{'---:|' * (len(_COLUMNS) - 3)}"


def _print_row(case, device, mode, found, differences):
    cells = [case.title, device, mode]
    if "error" in found:
        cells += ["failed"] * (len(_COLUMNS) - 3)
    else:
        cells += [f"{found['first_step_s']:.1f}", f"{found['step_ms']:.1f}"]
        cells += [f"{found['memory_mb']:,.0f}"]
        cells += [f"{differences[name]:.1e}" if differences else "" for name in _TOLERANCES]
    print(f"| {' | '.join(cells)} |", flush=True)
