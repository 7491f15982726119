import collections

import numpy as np
import pytest

from benchmarks.harness import tasks
from benchmarks.harness.evaluation import evaluate, keras_top_k
from benchmarks.harness.tasks import with_equal_counts
from benchmarks.methods.method_table import METHODS
from benchmarks.rivals.examples import Examples
from tests.datasets.xmc_files import write_xmc
from tf_largeout import datasets

N, FEATURES, WIDEST = 30, 40, 9


def _lines(rng, count):
    """Examples in the text format: class c has the feature c; few classes are frequent."""
    for _ in range(count):
        labels = np.unique(np.floor(N * rng.random(rng.integers(1, 4)) ** 2).astype(int))
        others = rng.choice(np.arange(N, FEATURES), rng.integers(0, WIDEST - 3), replace=False)
        features = " ".join(f"{i}:{rng.random() + 0.1:.3f}" for i in [*labels, *others])
        yield f"{','.join(map(str, labels))} {features}\n"


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    train, test = (f"{n} {FEATURES} {N}\n{''.join(_lines(rng, n))}" for n in (300, 70))
    write_xmc(tmp_path / "downloads" / "manual" / "xmc" / "tiny", train, test)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.slow
def test_features_with_weights_train_a_model(data_dir):
    task = tasks.load("xmc/tiny", 50)
    features, labels = task.test
    assert set(features) == {"ids", "weights"}
    assert {part.shape[0] for part in features.values()} == {len(labels)} == {70}
    some, some_labels = task.test_sample(20)
    assert len(some["ids"]) == len(some_labels) == 20
    options = {"learning_rate": 0.003, "num_sampled": 8, "steps_per_execution": 1}
    model = METHODS["ours"].model(task, METHODS["ours"].settings_for("tiny", **options))
    before = evaluate(model, features, labels)
    model.fit(task.train, steps_per_epoch=30, shuffle=False, verbose=0)
    after = evaluate(model, features, labels)
    assert after["p1"] > before["p1"] + 20, (before, after)
    assert keras_top_k(model)(some, 3).shape == (20, 3)
    # The weights matter: without them, the logits are others.
    flat = {**features, "weights": np.ones_like(features["weights"])}
    assert (
        np.abs(model.predict(features, verbose=0) - model.predict(flat, verbose=0)).max() > 0.1
    )


def test_equal_counts(data_dir):
    corpus = datasets.load("xmc/tiny").corpus
    count = 8
    even = with_equal_counts(corpus, count)
    train = even.labels.take(np.arange(even.num_train))
    assert set(collections.Counter(train.values.tolist()).values()) == {count}
    frequent = np.flatnonzero(corpus.label_counts(np.arange(corpus.num_train)) >= count)
    assert [even.class_texts[i] for i in range(even.num_classes)] == [
        corpus.class_texts[i] for i in frequent
    ]
    assert even.labels.lengths.min() == 1
    rows = {corpus.example_texts[i]: i for i in range(corpus.num_examples)}
    for new in range(even.num_examples):
        old = rows[even.example_texts[new]]
        names = {even.class_texts[i] for i in even.labels.row(new)}
        all_names = {corpus.class_texts[i] for i in corpus.labels.row(old)}
        kept = {corpus.class_texts[i] for i in np.intersect1d(corpus.labels.row(old), frequent)}
        assert names <= all_names if new < even.num_train else names == kept
        np.testing.assert_array_equal(even.features.row(new), corpus.features.row(old))
        np.testing.assert_array_equal(
            even.ragged_weights.row(new), corpus.ragged_weights.row(old)
        )
    task = tasks.load(f"xmc/tiny@{count}", 50)
    np.testing.assert_array_equal(task.label_counts, np.full(len(frequent), count))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("xmc/tiny@0", "`count` from 1 to .* Received: count=0"),
        ("xmc/tiny@999", "`count` from 1 to .* Received: count=999"),
        ("xmc/tiny@many", "number after @, as in xmc/NAME@10.*'xmc/tiny@many'"),
        ("xmc/missing", "train.txt is missing"),
        ("tiny", "Unknown task 'tiny'. There are: .*, xmc/NAME"),
    ],
)
def test_unknown_tasks(name, message, data_dir):
    with pytest.raises(ValueError, match=message):
        tasks.load(name, 50)


def test_other_libraries_do_not_take_weights(data_dir):
    with pytest.raises(ValueError, match="ids have weights"):
        Examples.of_task(tasks.load("xmc/tiny", 50))
