"""A task of 1,100,000 classes: the next identifier of C code from the eight before it."""

import pathlib

import numpy as np

from benchmarks.harness.tasks import TASKS, Task, endless_batches
from lab import corpora

_CLASSES, _BEFORE, _TRAIN, _TESTED = 1_100_000, 8, 1_536_000, 10_000
_FILE = pathlib.Path("benchmark-results/identifiers.npz")


def add_task():
    """Adds the task to `TASKS`, as "linux_tokens"."""
    TASKS["linux_tokens"] = _task


def _task(name, batch_size, seed, on_validation):
    """Returns random places of the text; its test files have no part in training.

    Identifiers are the most frequent ones of `linux_tokens` with three and more letters, in the
    order of their counts. Other tokens are left out. The order of the eight is not used. The
    places are kept in a file, because reading the text takes many seconds.
    """
    if not _FILE.exists():
        _FILE.parent.mkdir(parents=True, exist_ok=True)
        np.savez(_FILE, **_places())
    with np.load(_FILE) as file:
        train, test = file["train"], file["test"]
    features, labels = train[:, :-1] + 1, train[:, -1].astype(np.int64)  # 0 is padding
    return Task(
        num_classes=_CLASSES,
        num_features=_CLASSES + 1,
        train=endless_batches(features, labels, batch_size, seed),
        test=(test[:, :-1] + 1, test[:, -1].astype(np.int64)),
        label_counts=np.bincount(labels, minlength=_CLASSES),
        num_examples=_TRAIN,
    )


def _places():
    """Returns int32 `[places, 9]` of the classes of successive identifiers, for each split."""
    text = corpora.load("linux_tokens")
    words = (text.class_text(number) for number in range(text.num_classes))
    kept = np.array([len(word) > 2 and word.isidentifier() for word in words])
    kept[text.unknown_id] = False
    class_of = np.cumsum(kept, dtype=np.int32) - 1
    kept &= class_of < _CLASSES
    draw, places = np.random.default_rng(0), {}
    for split, tokens, count in (
        ("train", text.train_tokens, _TRAIN),
        ("test", text.test_tokens, _TESTED),
    ):
        classes = class_of[tokens[kept[tokens]]]
        first = draw.integers(0, len(classes) - _BEFORE, count)
        places[split] = classes[first[:, np.newaxis] + np.arange(_BEFORE + 1)]
    return places
