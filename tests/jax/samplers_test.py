"""Draws of samplers on JAX: their frequencies, expected counts, state and arguments."""

import functools
import itertools

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

from tests.reference import samplers as reference
from tf_largeout import sampling_tables as tables
from tf_largeout.jax import samplers
from tf_largeout.jax.draws import Line, Pair
from tf_largeout.jax.steps import Form

MOST = 2**31 - 2
COUNTS = np.array([5.0, 0, 3, 1, 0, 40, 2, 2, 9, 4])
N = COUNTS.size


class StubLayer(keras.layers.Layer):
    """A layer with only what a sampler needs."""

    def __init__(self, num_classes, sampler):
        super().__init__()
        self.num_classes, self.sampler = num_classes, sampler
        sampler.build(self)


class StubHead:
    """A head whose rows are `table`."""

    def __init__(self, key, table=None):
        self.key, self.classes = key, (table, None, Form())

    def next_key(self):
        self.key, key = jax.random.split(self.key)
        return key


def built(sampler, num_classes=N):
    StubLayer(num_classes, sampler)
    return sampler


def sample(sampler, labels=((0, -1),), seed=0, features=None, table=None):
    labels = jnp.asarray(labels, jnp.int32)
    return sampler.sample(features, labels, StubHead(jax.random.key(seed), table))


def expected_counts(sampler):
    """Returns the expected count of each class, for a static sampler."""
    shares = jax.jit(sampler.line().shares)(jnp.arange(sampler.num_classes))
    return np.asarray(shares) * (1 if sampler.unique else sampler.num_sampled)


def draws(sampler, times, labels=((0, -1),)):
    """Returns the values of `times` independent samples."""
    draw = jax.jit(jax.vmap(lambda seed: sample(sampler, labels, seed)))
    return map(np.asarray, draw(jnp.arange(times)))


MAKE = {
    "uniform": samplers.UniformSampler,
    "log_uniform": samplers.LogUniformSampler,
    "unigram": functools.partial(samplers.UnigramSampler, counts=COUNTS, distortion=0.5),
}
Q = {
    "uniform": reference.uniform(N),
    "log_uniform": reference.log_uniform(N),
    "unigram": reference.unigram(COUNTS, 0.5),
}
WAYS = {
    "distinct": {},
    "with replacement": {"unique": False},
    "own": {"shared": False},
}


@pytest.mark.parametrize(
    "kind, way",
    [
        *(("log_uniform", way) for way in WAYS),
        ("unigram", "distinct"),
        ("unigram", "with replacement"),
        ("uniform", "distinct"),
    ],
)
def test_classes_are_drawn_as_often_as_expected(kind, way):
    times, m = 4000, 4
    sampler = built(MAKE[kind](m, **WAYS[way]))
    pi = reference.expected_counts(Q[kind], m, sampler.unique)
    labels = np.array([[3, -1], [9, 0]])
    ids, true_counts, counts = draws(sampler, times, labels)
    np.testing.assert_allclose(counts, pi[ids], rtol=1e-6)
    wanted = np.where(labels >= 0, pi[labels], 1)
    np.testing.assert_allclose(true_counts, [wanted] * times, rtol=1e-6)
    num_drawn = times * m if sampler.shared else 2 * times * m
    found, share = np.bincount(ids.ravel(), minlength=N) / num_drawn, pi / m
    variance = share * (1 - pi if sampler.unique else 1 - share) / num_drawn
    assert (np.abs(found - share) <= 4.5 * np.sqrt(np.maximum(variance, 0)) + 1e-6).all()
    if sampler.unique:
        assert all(len(set(one)) == m for one in ids)


def test_pairs_are_drawn_as_by_ordered_pivotal_sampling():
    times, m = 20_000, 4
    sampler = built(MAKE["unigram"](m))
    pi, pairs = expected_counts(sampler).astype(float), np.zeros((N, N))
    # Of a ring that starts in a class with the probability of the class.
    for start in range(N):
        order = np.roll(np.arange(N), -start)
        _, second = reference.ordered_pivotal_inclusion(pi[order])
        pairs[np.ix_(order, order)] += pi[start] / m * second
    ids, _, _ = draws(sampler, times)
    drawn = np.zeros((times, N))
    np.put_along_axis(drawn, ids, 1, axis=1)
    deviation = np.abs(drawn.T @ drawn / times - pairs)
    variance = np.maximum(pairs * (1 - pairs), 0) / times
    assert (deviation <= 4.5 * np.sqrt(variance) + 1e-6).all()


def test_all_classes_are_drawn_once_if_as_many_are_drawn():
    ids, _, counts = draws(built(samplers.LogUniformSampler(N)), 3)
    np.testing.assert_array_equal(np.sort(ids), [np.arange(N)] * 3)
    np.testing.assert_array_equal(counts, 1)


SIZES = [
    (1, 1, True),
    (7, 5, True),
    (30_000, 900, True),
    (50, 49, True),
    (50, 50, True),
    (30_000, 900, False),
]


@pytest.mark.parametrize("num_classes, m, unique", SIZES)
@pytest.mark.parametrize("kind", ["uniform", "log_uniform"])
def test_expected_counts_add_up(kind, num_classes, m, unique):
    sampler = built(MAKE[kind](m, unique=unique), num_classes)
    counts = expected_counts(sampler)
    assert counts.sum(dtype=float) == pytest.approx(m, rel=1e-6)
    q = getattr(reference, kind)(num_classes)
    wanted = reference.expected_counts(q, m, sampler.unique)
    np.testing.assert_allclose(counts, wanted, rtol=6.3e-5)


@pytest.mark.parametrize(
    "kind, way",
    [
        ("uniform", "distinct"),
        ("log_uniform", "distinct"),
        ("log_uniform", "with replacement"),
    ],
)
def test_draws_of_2_billion_classes_fit_the_formula(kind, way):
    times, m, bins = 50, 1024, 200
    sampler = built(MAKE[kind](m, **WAYS[way]), MOST)
    ids, _, counts = draws(sampler, times)
    assert ids.min() >= 0 and ids.max() < MOST
    x = ids.astype(float)
    if kind == "uniform":
        np.testing.assert_allclose(counts, m / MOST, rtol=1e-6)
        places = x / MOST
        parts = [
            np.bincount((places * bins).astype(int).ravel()),
            np.bincount(ids.ravel() % 64),
        ]
    else:
        first = tables.num_certain(MOST, m) if sampler.unique else 0
        rest, log = m - first, np.log((MOST + 1) / (first + 1))
        pi = np.where(x < first, 1, rest * np.log1p(1 / (x + 1)) / log)
        np.testing.assert_allclose(counts, pi, rtol=6.3e-5)
        # The probability of all classes up to the middle of a class.
        places = np.log((x[x >= 1000] + 1.5) / 1001) / np.log((MOST + 1) / 1001)
        parts = [np.bincount((places * bins).astype(int).ravel(), minlength=bins)]
    for found in parts:
        wanted = found.sum() / len(found)
        chi_square = ((found - wanted) ** 2 / wanted).sum()
        assert chi_square < len(found) + 4.5 * np.sqrt(2 * len(found))
    if sampler.unique:
        assert all(len(set(one)) == m for one in ids)


@pytest.mark.parametrize("num_classes, num_strata", [(MOST, 1024), (20_000, 19_999)])
def test_places_on_a_line_belong_to_the_class_that_is_found(num_classes, num_strata):
    line = Line(
        num_strata, *map(jnp.asarray, tables.log_uniform_tables(num_classes, num_strata))
    )
    total = num_strata * line.stratum
    rng = np.random.default_rng(0)
    near = rng.integers(0, num_classes, 6000)
    start = jax.jit(lambda ids: vars(line.start(ids)))
    starts = as_ints(**start(jnp.asarray(near)))
    places = np.concatenate([rng.integers(0, total, 6000), starts])
    words = jnp.asarray(tables.words_of(places))
    ids = jax.jit(lambda words: line.find(Pair(words[:, 0], words[:, 1])))(words)
    assert (as_ints(**start(ids)) <= places).all()
    assert (as_ints(**start(ids + 1)) > places).all()
    assert as_ints(**start(jnp.full(ids.shape, num_classes)))[0] == total
    np.testing.assert_array_equal(ids[6000:], near)


def as_ints(high, low):
    return (np.asarray(high).astype(np.int64) << 32) + np.asarray(low)


def test_pairs_calculate_with_64_bits():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2**62, (2, 1000))
    factor = rng.integers(0, 2**32, 1000)
    pairs = [Pair(*jnp.asarray(tables.words_of(x)).T) for x in (a, b)]
    np.testing.assert_array_equal(as_ints(**vars(pairs[0] + pairs[1])), a + b)
    np.testing.assert_array_equal(as_ints(**vars(pairs[0] + pairs[1] - pairs[1])), a)
    np.testing.assert_array_equal(pairs[0] < pairs[1], a < b)
    product = pairs[0] * jnp.asarray(factor, jnp.uint32)
    wanted = [int(x) * int(y) % 2**64 for x, y in zip(a, factor, strict=True)]
    found = as_ints(**vars(product)).astype(np.uint64).tolist()
    assert found == wanted


def test_equal_keys_give_equal_draws():
    sampler = built(samplers.UniformSampler(4, unique=False))
    draw = jax.jit(lambda seed: sample(sampler, seed=seed).sampled_candidates)
    np.testing.assert_array_equal(draw(1), draw(1))
    assert (draw(1) != draw(2)).any()


LABELS = np.repeat(np.arange(N), COUNTS.astype(int))
PADDED = np.append(LABELS, [-1] * 6).reshape(-1, 8)
BATCHES = [(np.zeros(3), PADDED[:4]), (np.zeros(3), PADDED[4:])]


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, place):
        return BATCHES[place]


DATA = {
    "array": lambda: PADDED,
    "list": lambda: PADDED.tolist(),
    "array of JAX": lambda: jnp.asarray(PADDED),
    "list of batches": lambda: BATCHES,
    "batches": lambda: iter(BATCHES),
    "batches that are lists": lambda: ([x, y] for x, y in BATCHES),
    "labels": lambda: iter(PADDED),
    "infinite": lambda: itertools.cycle(BATCHES),
    "PyDataset": Batches,
}


@pytest.mark.parametrize(
    "kind, built_first, unique",
    [*((kind, False, True) for kind in DATA), ("array", True, True), ("array", True, False)],
)
def test_adapt_counts_the_labels(kind, built_first, unique):
    sampler = samplers.UnigramSampler(3, unique=unique, distortion=0.75)
    if built_first:
        built(sampler)
    sampler.adapt(DATA[kind](), steps=2 if kind == "infinite" else None)
    if not built_first:
        built(sampler)
    wanted = reference.expected_counts(reference.unigram(COUNTS, 0.75), 3, unique)
    np.testing.assert_allclose(expected_counts(sampler), wanted, rtol=1e-6)
    np.testing.assert_array_equal(sampler.saved_state()["counts"], COUNTS)


@pytest.mark.parametrize("unique", [True, False])
def test_the_state_is_saved_as_on_tensorflow_and_loads(unique):
    sampler = built(MAKE["unigram"](3, unique=unique))
    state = sampler.saved_state()
    large = ("cumulative", "index") if unique else ("alias_slots", "probability")
    assert set(state) == {*large, "counts"}
    assert state["counts"].dtype == np.float64 and state[large[0]].dtype == np.int64
    again = built(samplers.UnigramSampler(3, distortion=0.5, unique=unique))
    assert not any(value.any() for value in again.saved_state().values())
    again.load_state(state)
    np.testing.assert_array_equal(expected_counts(again), expected_counts(sampler))
    np.testing.assert_array_equal(again.saved_state()["counts"], COUNTS)


def test_counts_come_with_the_weights_of_another_layer():
    first = StubLayer(N, MAKE["unigram"](3))
    second = StubLayer(N, samplers.UnigramSampler(3))
    with pytest.raises(ValueError, match="has no class counts.*clone.set_weights"):
        sample(second.sampler)
    second.set_weights(first.get_weights())
    np.testing.assert_array_equal(
        expected_counts(second.sampler), expected_counts(first.sampler)
    )


def test_the_state_of_another_sampler_is_not_loaded(caplog):
    sampler = built(MAKE["unigram"](3))
    sampler.load_state({"counts": np.ones(N + 1)})
    assert "starts with a new state" in caplog.text
    np.testing.assert_array_equal(sampler.saved_state()["counts"], COUNTS)


ROWS = np.random.default_rng(0).normal(size=(N, 3)).astype("float32")
FEATURES = np.random.default_rng(1).normal(size=(2, 3)).astype("float32")
BEST = np.argsort(-FEATURES @ ROWS.T, axis=1)


@jax.jit
def searched(features, table):
    return sample(SEARCH, [[int(BEST[0, 1]), -1], [int(BEST[1, -1]), 1]], 0, features, table)


SEARCH = samplers.TopKSampler(6, num_hard=2)


def test_the_head_has_the_best_classes_and_the_tail_is_static():
    if not SEARCH.num_classes:
        built(SEARCH)
    head, tail = searched(FEATURES, ROWS)
    np.testing.assert_array_equal(head.sampled_candidates, BEST[:, :2])
    np.testing.assert_array_equal(head.true_expected_count[:, 0], [1, 0])
    np.testing.assert_array_equal(head.sampled_expected_count, 1)
    np.testing.assert_allclose(tail.sampled_expected_count, np.full(4, 4 / N), rtol=1e-6)
    both = samplers.HeadAndTail(head, tail).true_expected_count
    np.testing.assert_allclose(both[:, 0], [1, 4 / N], rtol=1e-6)
    assert SEARCH.counts_are == "probabilities"


@pytest.mark.parametrize("num_sampled", [4, N + 2])
def test_without_a_tail_all_classes_are_searched(num_sampled):
    sampler = built(samplers.TopKSampler(num_sampled))
    ids, *counts = sample(sampler, [[0], [1]], 0, FEATURES, ROWS)
    np.testing.assert_array_equal(ids[:, :N], BEST[:, :num_sampled])
    np.testing.assert_array_equal(ids[:, N:], -1)
    assert sampler.counts_are == "none" and all((one == 1).all() for one in counts)


@pytest.mark.parametrize(
    "start_step, labels, step",
    [
        (3, lambda step: [[0], [1]], 3),
        (None, lambda step: [[0, 1], [-1, 2]], 100),  # all return in each step
        (None, lambda step: [[step], [step]], 300),
    ],
)
def test_the_search_starts_in_the_step_of_the_rule(start_step, labels, step):
    sampler = built(samplers.TopKSampler(4, num_hard=2, start_step=start_step), 500)
    table = np.zeros((500, 3), np.float32)
    run = jax.jit(lambda state, labels: stateless(sampler, state, labels, table))
    state = [one.value for one in sampler._weights.values()]
    for number in range(step + 2):
        state, found = run(state, jnp.asarray(labels(number), jnp.int32))
        assert (np.asarray(found) >= 0).all() == (number >= step), number
    for weight, value in zip(sampler._weights.values(), state, strict=True):
        weight.assign(value)
    saved = sampler.saved_state()
    np.testing.assert_array_equal(saved["search_start"], [step + 2, step])
    assert saved["search_start"].dtype == np.int64
    again = built(samplers.TopKSampler(4, num_hard=2, start_step=start_step), 500)
    again.load_state(saved)
    np.testing.assert_array_equal(again.saved_state()["search_start"], saved["search_start"])


def stateless(sampler, state, labels, table):
    weights = list(sampler._weights.values())
    with keras.StatelessScope(state_mapping=zip(weights, state, strict=True)) as scope:
        head, _ = sample(sampler, labels, 0, FEATURES, table)
    return [scope.get_current_value(one) for one in weights], head.sampled_candidates


def test_steps_before_the_start_make_no_pass():
    sampler = built(samplers.TopKSampler(4, num_hard=2, start_step=5), 500)
    state = [one.value for one in sampler._weights.values()]
    table = jnp.zeros((500, 3))
    program = jax.make_jaxpr(
        lambda state, table: stateless(sampler, state, jnp.zeros((2, 1), jnp.int32), table)
    )(state, table)
    users = [
        equation.primitive.name
        for equation in program.eqns
        if any(value is program.jaxpr.invars[-1] for value in equation.invars)
    ]
    assert set(users) <= {"cond", "stop_gradient"}


@pytest.mark.parametrize(
    "make",
    [
        lambda: samplers.UniformSampler(5, seed=3),
        lambda: samplers.LogUniformSampler(5, unique=False),
        lambda: samplers.UnigramSampler(5, distortion=0.75, shared=False),
        lambda: samplers.TopKSampler(5, num_hard=2, tail="log_uniform", start_step=None),
        lambda: samplers.TopKSampler(5, seed=1),
    ],
)
def test_configs_make_equal_samplers(make):
    sampler = make()
    config = keras.saving.serialize_keras_object(sampler)
    assert config["registered_name"] == f"tf_largeout>{type(sampler).__name__}"
    again = samplers.get(config)
    assert type(again) is type(sampler) and again.get_config() == sampler.get_config()


ERRORS = {
    "positive integer": lambda: samplers.UniformSampler(0),
    "shared=False, unique=True": lambda: samplers.UniformSampler(2, True, shared=False),
    "distinct classes of 10.*unique=False": lambda: built(samplers.UniformSampler(11)),
    "already built": lambda: built(built(samplers.UniformSampler(3))),
    "has no argument `nprobe`": lambda: samplers.UniformSampler(3, nprobe=1),
    "no class counts": lambda: sample(built(samplers.UnigramSampler(3))),
    "has counts of 3 classes": lambda: built(samplers.UnigramSampler(3, np.ones(3))),
    "finite and not negative": lambda: samplers.UnigramSampler(3, [1.0, -1.0]),
    "iterable.*several lengths": lambda: samplers.UnigramSampler(3).adapt([[0], [1, 2]]),
    "iterable.*dtype float64": lambda: samplers.UnigramSampler(3).adapt(np.zeros(3)),
    "contains none": lambda: samplers.UnigramSampler(3).adapt([-1]),
    "below `num_sampled`": lambda: samplers.TopKSampler(4, num_hard=4),
    "pass `num_hard`": lambda: samplers.TopKSampler(4, start_step=3),
    "Make a TopKSampler the": lambda: samplers.TopKSampler(4, 2, tail=samplers.TopKSampler(2)),
    "needs the counts|no class counts.": lambda: samplers.get("unigram"),
    "Unknown sampler: 'lsh'.*TensorFlow": lambda: samplers.get("lsh"),
    "not its class": lambda: samplers.get(samplers.UniformSampler),
    "To draw 512 classes": lambda: samplers.get(512),
    "LSHSampler needs Keras's TensorFlow backend": lambda: samplers.get(
        {
            "module": "tf_largeout.papers.lsh.lsh_sampler",
            "class_name": "LSHSampler",
            "config": {"num_sampled": 4},
            "registered_name": "tf_largeout>LSHSampler",
        }
    ),
}


@pytest.mark.parametrize("message", ERRORS)
def test_errors_say_what_to_do(message):
    with pytest.raises((ImportError, ValueError), match=f"(?s){message}"):
        ERRORS[message]()


def test_names_draw_at_most_half_of_the_classes():
    assert samplers.get(None) is None
    assert samplers.get("log_uniform", 100).num_sampled == 50
    assert samplers.get("top_k").num_sampled == 1024


def test_a_sampler_of_a_user_draws_in_its_own_way():
    class First(samplers.Sampler):
        def draw(self, features, labels, head):
            ids = jnp.arange(self.num_sampled)
            return samplers.SampledValues(ids, jnp.ones(labels.shape), jnp.ones(ids.shape))

    values = sample(built(First(3)))
    np.testing.assert_array_equal(values.sampled_candidates, [0, 1, 2])
