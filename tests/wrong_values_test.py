"""Wrong values of arguments raise a ValueError that says what came and what was expected."""

import functools

import keras
import numpy as np
import pytest

import tf_largeout as tflo

N, DIM = 12, 3
ROWS = np.random.default_rng(0).normal(size=(N, DIM)).astype("float32")
QUERIES = ROWS[:2]
Sampler = functools.partial(tflo.samplers.LSHSampler, 8)


@functools.cache
def model():
    head = tflo.layers.LargeOutput(N, "uniform", embeddings_initializer=ROWS)
    return keras.Sequential([keras.Input([DIM]), head])


def top_k(features=QUERIES, k=2, **arguments):
    return model().layers[-1].top_k(features, k, **arguments)


def predicted(**arguments):
    given = {"model": model(), "x": QUERIES, "k": 2, "verbose": 0, **arguments}
    return tflo.retrieval.predict_top_k(**given)


def built(rows=ROWS, bias=None):
    return tflo.retrieval.BruteForceIndex().build(rows, bias)


NUMBERS = {
    "initial_accumulator_value": ("LazyAdagrad", "RowwiseAdagrad"),
    "epsilon": ("LazyAdagrad", "RowwiseAdagrad", "LazyAdam"),
    "weight_decay": ("LazyAdagrad", "RowwiseAdagrad", "LazyAdam", "LazySGD"),
    "learning_rate": ("LazyAdagrad", "RowwiseAdagrad", "LazyAdam", "LazySGD"),
    "beta_1": ("LazyAdam",),
    "beta_2": ("LazyAdam",),
    "momentum": ("LazySGD",),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_optimizers_check_their_numbers(name):
    for cls in NUMBERS[name]:
        make = getattr(tflo.optimizers, cls)
        make(**{name: 0.0})
        for value in (-0.5, float("nan"), float("inf")):
            with pytest.raises(ValueError, match=f"`{name}` must be a number of at least 0"):
                make(**{name: value})
        with pytest.raises(ValueError):  # Keras checks the type of learning rates
            make(**{name: "x"})


CASES = {
    "beta": (lambda: tflo.optimizers.LazyAdam(beta_2=1), "below 1. Received: beta_2=1 "),
    "nesterov": (lambda: tflo.optimizers.LazySGD(nesterov=0.9), "`nesterov` must be True or"),
    "absolute": (lambda: top_k(absolute="x"), "`absolute` must be True, False or None.*'x'"),
    "strings as features": (
        lambda: top_k([["a"] * DIM]),
        r"`features` must be an array of numbers, \[..., 3\]. Received: dtype string, of shape",
    ),
    "tail without num_hard": (
        lambda: Sampler(tail=tflo.samplers.UniformSampler(8)),
        "Received: tail=.*UniformSampler.*num_hard=None. Pass `num_hard` too",
    ),
    "tail of another type": (lambda: Sampler(tail=3), "Received: tail=3, num_hard=None"),
    "more probes than lists": (
        lambda: tflo.retrieval.InvertedFileIndex(num_lists=3, num_probes=5),
        "at most `num_lists`.*Received: num_probes=5, num_lists=3. With num_probes=3",
    ),
    "initializer": (
        lambda: tflo.layers.EmbeddingBag(4, 2, embeddings_initializer=0),
        "initializer identifier: 0",
    ),
    "no queries": (
        lambda: tflo.retrieval.InvertedFileIndex().build(ROWS, queries=QUERIES[:0]),
        "`queries` must contain at least one query",
    ),
    "names as counts": (
        lambda: tflo.samplers.UnigramSampler(8, counts=["a"] * N),
        "`counts` must be one number per class. Received: a value of type list: could not",
    ),
    "number as data": (
        lambda: tflo.callbacks.SamplerHealth(5),
        r"`x` must be arrays, or .*x=5 \(of type int\). Pass SamplerHealth\(x, y\)",
    ),
    "path as data": (lambda: tflo.callbacks.ExactMetrics("x"), "Received: x='x' .of type str"),
    "number as index": (
        lambda: predicted(index=5),
        r"`index` must be an index with a method `top_k`.*index=5 \(of type int\). Build one",
    ),
    "class as index": (
        lambda: predicted(index=tflo.retrieval.BruteForceIndex),
        "`index` must be an index.*BruteForceIndex",
    ),
    "no model": (lambda: predicted(model="m"), "`predict_top_k` needs a keras.Model.*'m'"),
    "batch size": (lambda: predicted(batch_size=0), "`batch_size` must be a positive integer"),
    "strings as rows": (
        lambda: built([["a"]]),
        r"`class_embeddings` must be an array of numbers, \[n, dim\].*dtype string, of shape",
    ),
    "rows of two lengths": (
        lambda: built([[1.0, 2.0], [3.0]]),
        "`class_embeddings` must be an array of numbers.*type list: Can't convert",
    ),
    "complex rows": (lambda: built(ROWS * 1j), "Received: dtype complex"),
    "strings as biases": (lambda: built(ROWS, ["a"] * N), r"`bias` must be .*\[12\].*string"),
    "strings as queries": (
        lambda: built().top_k([["a"] * DIM], 2),
        r"`queries` must be an array of numbers, \[n, 3\]. Received: dtype string",
    ),
    "export of no model": (
        lambda: tflo.serving.export("m", "not written"),
        "`export` needs a keras.Model. Received: model='m'",
    ),
    "export to no path": (lambda: tflo.serving.export(model(), ""), "Received: path=''"),
    "conversion of a plain model": (
        lambda: tflo.convert(model()),
        "For another model, build.*share it: LargeOutput.*embeddings=layer, use_bias=False",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_value_is_refused(case):
    function, message = CASES[case]
    with pytest.raises(ValueError, match=message):
        function()


def test_an_export_to_an_impossible_path_fails_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    path = str(tmp_path / "file" / "1")
    with pytest.raises(OSError, match=f"`path` must be a folder that can be .*path='{path}'"):
        tflo.serving.export(model(), path)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


@pytest.mark.slow
def test_a_model_with_a_tied_table_is_built_as_the_message_says():
    table = keras.layers.ReversibleEmbedding(N, DIM)
    tokens = keras.Input([2], dtype="int32")
    features = keras.layers.Dense(DIM)(table(tokens))
    before = keras.Model(tokens, table(features, reverse=True))
    head = tflo.layers.LargeOutput(N, sampler="uniform", embeddings=table, use_bias=False)
    ids = np.array([[1, 2], [3, 4]])
    after = keras.Model(before.input, head(features))
    np.testing.assert_allclose(after(ids), before(ids), rtol=1e-5, atol=1e-6)
