"""One model of each kind that can be exported, with data and expected results."""

import keras
import numpy as np

from tests import harness
from tf_largeout import layers, losses, optimizers, samplers

N, DIM, BATCH, K = 211, 8, 5, 6
RNG = np.random.default_rng(8)
X = RNG.normal(size=(BATCH, DIM)).astype("float32")
WORDS = np.array([["river"], ["of"], ["gold"], ["unheard"], [""]])
IDS = RNG.integers(0, N, (BATCH, 3)).astype("int32")


def head(sampler=None, **kwargs):
    return layers.LargeOutput(N, sampler, bias_initializer="random_normal", **kwargs)


def dense(output=None, dtype=None):
    layer = keras.layers.Dense(DIM, "tanh", dtype=dtype)
    return keras.Sequential([keras.Input([DIM]), layer, head() if output is None else output])


def trained(sampler):
    """Returns a model whose sampler and optimizer have state."""
    model = dense(head(sampler))
    model.compile(optimizers.LazyAdam(0.1), losses.SampledSoftmaxLoss())
    fit(model)
    return model


def fit(model, rows=BATCH, epochs=1):
    """Trains without a trace of the step, which takes most of the time."""
    model.run_eagerly = True
    model.fit(X[:rows], np.arange(rows), epochs=epochs, verbose=0)
    model.run_eagerly = False


def tied():
    table = keras.layers.Embedding(N, DIM)
    pooled = keras.layers.GlobalAveragePooling1D()
    inputs = keras.Input([3], dtype="int32", name="words")
    return keras.Model(inputs, head(embeddings=table)(pooled(table(inputs))))


def factored():
    model = dense(layers.FactoredOutput(N, 5.0, bias_initializer="random_normal"))
    model.compile("sgd", losses.ZLoss())
    fit(model, epochs=3)
    return model


def strings():
    inputs = keras.Input([1], dtype="string", name="title")
    words = keras.layers.TextVectorization(output_sequence_length=4, output_mode="int")
    words.adapt(WORDS[:3])
    letters = keras.layers.StringLookup(vocabulary=["river", "gold"])
    parts = [keras.layers.Embedding(16, 4)(one(inputs)) for one in (words, letters)]
    joined = keras.layers.Concatenate()([keras.layers.Flatten()(one) for one in parts])
    return keras.Model(inputs, head()(keras.layers.Dense(DIM)(joined)))


def several_inputs():
    inputs = {name: keras.Input([DIM], name=name) for name in ("query", "context")}
    joined = keras.layers.Concatenate()([inputs["query"], inputs["context"]])
    return keras.Model(inputs, head()(keras.layers.Dense(DIM)(joined)))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.dropout = keras.layers.Dense(DIM), keras.layers.Dropout(0.5)
        self.head = head()

    def call(self, inputs, training=False):
        return self.head(self.dropout(self.hidden(inputs), training=training))


def called(model):
    model(X)
    return model


# The model, and its inputs by the names of the signatures.
MODELS = {
    "large": (dense, {"features": X}),
    "no_bias": (lambda: dense(layers.LargeOutput(N, use_bias=False)), {"features": X}),
    "hash_tables": (lambda: trained(samplers.LSHSampler(32)), {"features": X}),
    "inverted_file": (
        lambda: trained(samplers.InvertedFileSampler(32, start_step=0)),
        {"features": X},
    ),
    "tied": (tied, {"words": IDS}),
    "factored": (factored, {"features": X}),
    "hierarchical": (lambda: dense(layers.HierarchicalOutput(N)), {"features": X}),
    "strings": (strings, {"title": WORDS}),
    "several_inputs": (several_inputs, {"query": X, "context": X[::-1]}),
    "subclassed": (lambda: called(Subclassed()), {"features": X}),
    "sequences": (
        lambda: keras.Sequential([keras.Input([3, DIM], name="steps"), head()]),
        {"steps": np.stack([X, X[::-1], 2 * X], axis=1)},
    ),
}


def new_model(name):
    keras.utils.set_random_seed(3)
    return MODELS[name][0]()


def logits_of(model, name):
    """Returns the logits of `predict`, with which results of exports are compared."""
    inputs = MODELS[name][1]
    if len(inputs) == 1:
        (inputs,) = inputs.values()
    # TensorFlow does not accept NumPy strings.
    inputs = inputs.astype(object) if name == "strings" else inputs
    return np.asarray(model(inputs), np.float64)


def excluded(logits, unknown=N + 9):
    """Returns some of the best classes per example, with a repeated, an unknown and no id."""
    (a, b, c, *_), (d, *_), _, (e, f, *_), (g, *_) = np.argsort(-logits.reshape(BATCH, -1))
    rows = [[a, b, c, b], [d], [], [f, e, unknown], [g]]
    return harness.pad([[one if one == unknown else one % N for one in row] for row in rows])


def best(logits, k=K, exclude=None):
    """Returns scores and ids of the `k` best classes by a sort, padded with -inf and -1."""
    logits = np.concatenate([logits, np.full((*logits.shape[:-1], k), -np.inf)], axis=-1)
    for row, ids in enumerate([] if exclude is None else exclude):
        logits[row, ..., [one for one in ids if 0 <= one < N]] = -np.inf
    ids = np.argsort(-logits, axis=-1, kind="stable")[..., :k]
    scores = np.take_along_axis(logits, ids, axis=-1)
    return {"scores": scores, "ids": np.where(scores > -np.inf, ids, -1)}


def assert_same(found, expected, tolerance=1e-5):
    """Checks scores up to `tolerance`; classes may swap places if their scores are so close."""
    ids, scores, best_ids, best_scores = (
        np.asarray(answer[name]) for answer in (found, expected) for name in ("ids", "scores")
    )
    np.testing.assert_allclose(scores, best_scores, rtol=tolerance, atol=tolerance)
    if tolerance == 0:
        np.testing.assert_array_equal(ids, best_ids)
    assert ids.shape == best_ids.shape
    for index in np.ndindex(ids.shape[:-1]):
        score_of = dict(zip(best_ids[index], best_scores[index], strict=True))
        # A class that is not among the best can only replace the last of them.
        of_found = [
            score_of.get(one, best_scores[index][-1] if one >= 0 else -np.inf)
            for one in ids[index]
        ]
        np.testing.assert_allclose(of_found, best_scores[index], rtol=tolerance, atol=tolerance)
        known = ids[index][ids[index] >= 0]
        assert len(set(known)) == len(known)
