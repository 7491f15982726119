"""Models whose classes are in shards, for the tests of samplers that search in each of them."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_largeout as tflo
from tests.papers.lsh.lsh_forms import lsh_sampler
from tests.slow import slow_but

N, DIM, BATCH, M = 600, 8, 16, 40
RNG = np.random.default_rng(0)
CLASSES = RNG.normal(size=(N, DIM)).astype("float32")
FEATURES = CLASSES[:BATCH] + 0.3 * RNG.normal(size=(BATCH, DIM)).astype("float32")
EACH_COUNT = pytest.mark.parametrize("num_shards", slow_but([7], [2, 3, 7]))


# Each form of the samplers that search, by name: class and arguments.
_LISTS, _LSH, _TREE = (
    tflo.samplers.InvertedFileSampler,
    lsh_sampler,
    tflo.samplers.KernelTreeSampler,
)
FORMS = {
    "lists: head": (_LISTS, {"num_hard": 8, "start_step": 3}),
    "lists: few": (_LISTS, {"num_hard": 8, "start_step": 3, "num_lists": 30, "num_probes": 4}),
    "lists: alone": (_LISTS, {"num_hard": None}),
    "lists: draws": (_LISTS, {"num_hard": None, "select": "draw"}),
    "lists: drawn head": (_LISTS, {"num_hard": 8, "start_step": 3, "select": "draw"}),
    "lsh: pool": (_LSH, {"num_hashes": 4}),
    "lsh: pool of labels": (_LSH, {"num_hashes": 4, "query": "label"}),
    "lsh: pool of both": (_LSH, {"num_hashes": 4, "query": "both"}),
    "lsh: union": (_LSH, {"hash": "dwta", "form": "pool"}),
    "lsh: other hashes": (_LSH, {"tables": {"hash": "dwta", "bin_size": 4}}),
    "lsh: walk": (_LSH, {"form": "walk"}),
    "lsh: frequent": (_LSH, {"form": "frequent", "num_hashes": 3}),
    "lsh: walk of labels": (_LSH, {"form": "walk", "query": "label"}),
    "lsh: head": (_LSH, {"num_hard": 8, "start_step": 3}),
    "lsh: head of labels": (
        _LSH,
        {"num_hard": 8, "query": "label", "hash": "dwta", "start_step": 0},
    ),
    "tree: pool": (_TREE, {"leaf_size": 20}),
    "tree: projected pool": (_TREE, {"projection_dim": 3}),
    "tree: own": (_TREE, {"shared": False}),
    "tree: projected own": (_TREE, {"shared": False, "projection_dim": 3, "leaf_size": 9}),
    "tree: head": (_TREE, {"num_hard": 6}),
}


def forms_of(structure):
    """Returns the names of the forms of "lists", "lsh" or "tree"."""
    return [form for form in FORMS if form.startswith(f"{structure}:")]


def sampler_of(form, num_sampled=M, **kwargs):
    """Returns a sampler of a form, with some arguments replaced."""
    sampler, arguments = FORMS[form]
    return sampler(num_sampled, **{"seed": 1, **arguments, **kwargs})


def model_of(form, num_shards, rate=0.02, normalize=False, **kwargs):
    """Returns a dense layer and a `LargeOutput`, with the same numbers whatever the shards."""
    keras.utils.set_random_seed(3)
    bias = 0.2 * np.random.default_rng(2).normal(size=N)
    sampler = sampler_of(form, **kwargs)
    head = tflo.layers.LargeOutput(
        N,
        sampler,
        bias_initializer=bias,
        num_shards=num_shards,
        normalize=normalize,
        scale=1 if normalize else None,
        name="head",
    )
    model = keras.Sequential([keras.Input([DIM]), keras.layers.Dense(DIM), head])
    model.compile(
        tflo.optimizers.LazyAdam(rate),
        tflo.losses.SampledSoftmaxLoss(),
        metrics=[tflo.metrics.PrecisionAtK(1)],
    )
    model.optimizer.build(model.trainable_variables)  # else each step is traced twice
    return model


def rebuilt(form, num_shards, **kwargs):
    """Returns a model whose search structure fits its rows."""
    model = model_of(form, num_shards, **kwargs)
    model.layers[-1].sampler.rebuild(model.layers[-1])
    return model


def fit(model, steps, seed=0):
    """Returns the loss of so many steps."""
    random = np.random.default_rng(seed)
    labels = random.integers(N, size=steps * BATCH)
    features = CLASSES[labels] + 0.3 * random.normal(size=(len(labels), DIM))
    return model.fit(features, labels, BATCH, shuffle=False, verbose=0).history["loss"][0]


def samples(model, labels, steps):
    """Returns what the sampler gives for `FEATURES` in so many steps."""
    head = model.layers[-1]

    def step():
        return head.sampler.sample(tf.constant(FEATURES), tf.constant(labels, tf.int64), head)

    if steps > 1:  # else a graph takes longer to make than the step
        step = tf.function(step)
    return [tf.nest.map_structure(lambda tensor: tensor.numpy(), step()) for _ in range(steps)]


def recall(model):
    """Share of the exact best 8 of `CLASSES` that the search finds with the current rows."""
    dense, head = model.layers
    features = dense(CLASSES)
    no_labels = tf.fill([N, 1], tf.constant(-1, tf.int64))
    found = head.sampler.search(features, no_labels, head).numpy()[:, :8]
    best = head.top_k(features, 8)[1].numpy()
    return np.mean([len(set(a) & set(b)) / 8 for a, b in zip(found, best, strict=True)])


def state(model, name):
    """Returns the weight of a shard's search state by its name, for each shard."""
    weights = {weight.name: weight.numpy() for weight in model.layers[-1].weights}
    count = model.layers[-1].num_shards
    if count == 1:
        return [weights[f"sampler_{name}"]]
    return [weights[f"sampler_{name}_{number}_of_{count}"] for number in range(count)]


def assert_counts_are_expected(drawn, expected, num_fixed=0):
    """Each count within 5.5 standard deviations, and chi-square of all within 5 of its own.

    `num_fixed` sums of the counts are not random.
    """
    assert np.all(np.abs(drawn - expected) < 5.5 * np.sqrt(expected) + 3)
    chi_square, freedom = np.sum((drawn - expected) ** 2 / expected), drawn.size - num_fixed
    assert chi_square < freedom + 5 * np.sqrt(np.sum(2 + 1 / expected))


def read_into(other, model, folder, form):
    """Saves `model`, and reads into `other` what fits it: all where it has as many shards."""
    if form == "file":
        model.save_weights(folder / "a.weights.h5")
        other.load_weights(folder / "a.weights.h5")
    else:
        path = tf.train.Checkpoint(model=model).write(folder / "check")
        tf.train.Checkpoint(model=other).read(path).expect_partial()
    np.testing.assert_array_equal(
        other.layers[-1].class_embeddings(), model.layers[-1].class_embeddings()
    )
    if other.layers[-1].num_shards == model.layers[-1].num_shards:
        for one, weight in zip(other.weights, model.weights, strict=True):
            np.testing.assert_array_equal(one, weight, err_msg=weight.path)
