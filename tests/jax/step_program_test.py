"""The compiled program of a train step updates tables in place: it has no copy of one."""

import re

import jax
import keras
import numpy as np
import pytest

import tf_largeout as tflo

N, DIM, BATCH = 100_003, 64, 8  # several blocks of classes
# Instructions that return N rows without writing all of them.
IN_PLACE = {
    "parameter",
    "get-tuple-element",
    "bitcast",
    "dynamic-update-slice",
    "scatter",
    "while",
}
UNIFORM, HARD = tflo.samplers.UniformSampler, tflo.samplers.TopKSampler


@pytest.mark.parametrize(
    "optimizer, dtype, encoder, sampler",
    [
        ("LazyAdam", "float32", "tied", lambda: HARD(64, num_hard=8, start_step=None)),
        ("RowwiseAdagrad", "float32", "separate", lambda: UNIFORM(64)),
        ("LazyAdam", "bfloat16", "tied", lambda: HARD(64, num_hard=8)),
    ],
)
def test_a_train_step_does_not_copy_a_table(optimizer, dtype, encoder, sampler):
    model = make_model(getattr(tflo.optimizers, optimizer)(), dtype, encoder, sampler())
    step = compiled_step(model)
    memory, table = step.memory_analysis(), N * DIM * np.dtype(dtype).itemsize
    assert memory.alias_size_in_bytes > table  # the tables and slots of the result
    if dtype == "float32":
        assert instructions_with_all_rows(step) <= IN_PLACE
        assert memory.temp_size_in_bytes < table / 2
    else:  # XLA for CPUs cannot update 16-bit floats, see `optimizers._write`
        assert memory.temp_size_in_bytes < 1.5 * table


def make_model(optimizer, dtype, encoder, sampler):
    inputs = keras.Input([5], dtype="int32")
    embedding = keras.layers.Embedding(N, DIM, dtype=dtype)
    features = keras.layers.Dense(DIM)(keras.layers.Flatten()(embedding(inputs)))
    options = {"embeddings": embedding} if encoder == "tied" else {"embeddings_dtype": dtype}
    output = tflo.layers.LargeOutput(N, sampler, **options)(features)
    model = keras.Model(inputs, output)
    metrics = [tflo.metrics.PrecisionAtK(1)]
    model.compile(optimizer, tflo.losses.SampledSoftmaxLoss(), metrics=metrics)
    return model


def compiled_step(model):
    """Returns the program that `fit` compiles."""
    data = np.zeros([BATCH, 5], np.int32), np.zeros([BATCH], np.int32), None
    model.optimizer.build(model.trainable_variables)
    model._symbolic_build(data_batch=data[:2])
    state = model._get_jax_state(*[True] * 4)
    return jax.jit(model.train_step, donate_argnums=0).lower(state, data).compile()


def instructions_with_all_rows(step):
    """Returns the names of the instructions that write an array of N rows.

    A fusion has the name of the instruction at its root. Others in a fusion write nothing.
    """
    roots, written, computation, name = {}, [], "", ""
    for line in step.as_text().splitlines():
        if begin := re.match(r"(?:ENTRY )?%(\S+) \(", line):
            computation = begin[1]
        if not (found := re.match(r"\s+(ROOT )?%\S+ = (.*?) ([\w-]+)\(", line)):
            continue
        name, calls = found[3], re.search(r"kind=\w+, calls=%([^\s,]+)", line)
        if found[1]:
            roots[computation] = name
        if re.match(rf"[a-z0-9]+\[{N}[\],]", found[2]):
            written.append((computation, calls[1] if calls else "", name))
    fused = {called for _, called, _ in written} | {
        one for one in roots if "fused" in one or one.startswith("wrapped")
    }
    return {roots.get(called, name) for where, called, name in written if where not in fused}
