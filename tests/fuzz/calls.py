"""Makes the random calls of one op."""

import contextlib
import dataclasses
import json
import resource
import traceback

import numpy as np
import tensorflow as tf

from tests.fuzz.draws import Draws

# Errors that an op may raise. Any other error is a failure of the op or of the check.
REFUSALS = (tf.errors.OpError, ValueError, TypeError, OverflowError, MemoryError)
MIB = 2**20


@dataclasses.dataclass
class Batch:
    """Calls `first` to `end - 1` of an op with a seed.

    Attributes:
        memory: MiB of address space that a call may allocate; 0 means no limit.
        print_calls: Whether to print the arguments of each call before it is made.
    """

    op: str
    seed: int
    first: int
    end: int
    memory: int = 0
    print_calls: bool = False


def make_calls(batch, case, progress):
    """Makes the calls of a batch, and prints wrong results as lines of JSON.

    Args:
        batch: A `Batch`.
        case: Function that makes a `Call` from `Draws`.
        progress: A `Progress`, which is updated before each call and at the end.
    """
    # Random numbers overflow.
    np.seterr(all="ignore")
    counts = {"answered": 0, "refused": 0, "wrong": 0}
    for number in range(batch.first, batch.end):
        progress.write(number, **counts)
        draws = Draws(batch.op, batch.seed, number)
        memory = batch.memory and (draws.memory or batch.memory)
        outcome, text = _run(case, draws, memory, batch.print_calls)
        counts[outcome] += 1
        if outcome == "wrong" or batch.print_calls:
            print(json.dumps({"call": number, "outcome": outcome, "text": text}), flush=True)
    progress.write(batch.end, **counts)


def describe(batch, case):
    """Prints the arguments of the first call without making it."""
    np.seterr(all="ignore")
    print(_described(case(Draws(batch.op, batch.seed, batch.first))), flush=True)


def _run(case, draws, memory, print_call):
    """Makes a call. Returns "answered", "refused" or "wrong", and the reason."""
    try:
        call = case(draws)
    except Exception:
        return "wrong", f"could not make arguments: {traceback.format_exc()}"
    if print_call:
        print(_described(call), flush=True)
    function = _in_graph(call.function) if draws.in_graph else call.function
    most = address_space() + memory * MIB if memory else None
    try:
        # Limit only the call. TensorFlow aborts if it cannot allocate memory for a constant.
        with limited_memory(most):
            result = function(*call.arguments, **call.options)
    except REFUSALS as error:
        return _checked("refused", call.check_refused, f"{type(error).__name__}: {error}")
    except Exception as error:
        return "wrong", f"{type(error).__name__}: {error} {traceback.format_exc()}"
    return _checked("answered", lambda: call.check(result), "")


def _checked(outcome, check, text):
    try:
        check()
    except Exception as error:
        return "wrong", f"{outcome}, but {type(error).__name__}: {error} {text}"
    return outcome, text


def _in_graph(function):
    """Wraps a function in a graph, and compares the inferred shapes with the actual ones."""

    def call(*arguments, **options):
        graph = tf.function(lambda: function(*arguments, **options), autograph=False)
        try:
            concrete = graph.get_concrete_function()
        except AssertionError as error:
            raise TypeError("TensorFlow 2.21 raises this for a wrong type") from error
        result = concrete()
        inferred = tf.nest.flatten(concrete.output_shapes)
        for shape, tensor in zip(inferred, tf.nest.flatten(result), strict=True):
            if tensor is not None and not shape.is_compatible_with(tensor.shape):
                raise AssertionError(f"inferred shape {shape}, actual shape {tensor.shape}")
        return result

    return call


@contextlib.contextmanager
def limited_memory(most):
    """Limits the address space of the process to `most` bytes; no limit if None."""
    old, hard = resource.getrlimit(resource.RLIMIT_AS)
    if most is not None:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (old, hard))


def address_space():
    """Returns the current address space of the process in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _described(call):
    """Returns a readable form of a call, in which each variable has its own number."""
    seen = []
    arguments = [_text(value, seen) for value in call.arguments]
    arguments += [f"{name}={_text(value, seen)}" for name, value in call.options.items()]
    return f"{call.function.__name__}({', '.join(arguments)})"


def _text(value, seen):
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_text(one, seen) for one in value) + "]"
    if isinstance(value, tf.Variable):
        seen += [] if any(value is one for one in seen) else [value]
        number = [value is one for one in seen].index(True)
        return f"Variable_{number}({value.dtype.name}{value.shape})"
    if isinstance(value, tf.Tensor):
        is_short = value.dtype != tf.resource and value.shape.num_elements() <= 8
        return f"{value.dtype.name}{value.shape}{value.numpy().tolist() if is_short else ''}"
    return repr(value)[:300]
