"""Problems on which the start of a search is measured; none is a data set of the package.

Each function returns features, labels and a bool array that marks the test examples. The texts
come from a Debian machine with fetched package lists, from the Python packages that are
installed, and from `pip install pymorphy3==2.0.6 pymorphy3-dicts-ru==2.4.417150.4580142`.
"""

import hashlib
import pathlib
import re
import subprocess
import sysconfig

import numpy as np

from benchmarks.harness import tasks
from lab.shared.directions import add_task
from tf_largeout.datasets.corpus import frequency_order
from tf_largeout.datasets.place_names import VOCABULARY_SIZE, encode

add_task()

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9+.]+")
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+|[^\w\s]")
_BAG = 24  # features of an example of words
_ROWS = VOCABULARY_SIZE  # of the encoder's table, also for words


def word_forms(examples=950_000):
    """A form of a Russian word -> the word: about 178,000 classes, about equally frequent."""
    import pymorphy3

    known = pymorphy3.MorphAnalyzer().dictionary.iter_known_words()
    owners = {}
    for form, _, word, *_ in known:
        if owners.setdefault(form, word) != word:
            owners[form] = None
    forms = [form for form, word in owners.items() if word is not None]
    chosen = np.sort(np.random.default_rng(0).permutation(len(forms))[:examples])
    forms = [forms[row] for row in chosen]
    words = [owners[form] for form in forms]
    ids = {word: i for i, word in enumerate(dict.fromkeys(words))}
    labels = np.fromiter((ids[word] for word in words), np.int64)
    is_test = np.random.default_rng(1).random(len(forms)) < 0.02
    return encode(forms, _BAG), labels, is_test


def package_queries(per_package=10):
    """A third of the words about a Debian package -> the package: 63,000 equal classes."""
    rng = np.random.default_rng(0)
    features, labels = [], []
    for label, record in enumerate(_packages()):
        fields = ("Package", "Description", "Section", "Tag", "Depends", "Source", "Maintainer")
        words = _WORD.findall(" ".join(record.get(field, "") for field in fields).lower())
        words = np.array([_hashed(word) for word in dict.fromkeys(words)])
        for _ in range(per_package):
            size = max(3, len(words) // 3)
            features.append(rng.permutation(words)[:size])
            labels.append(label)
    is_test = np.arange(len(labels)) % per_package == 0
    return _padded(features), np.array(labels), is_test


def package_depends():
    """Name and description of a Debian package -> its dependencies: a power law, many labels.

    Packages from one source are either all in the training split or all in the test split.
    """
    features, labels, is_test, ids = [], [], [], {}
    for record in _packages():
        needed = re.split(r"[,|]", record.get("Depends", "") + "," + record.get("Suggests", ""))
        needed = dict.fromkeys(one.split()[0].split(":")[0] for one in needed if one.strip())
        if not needed:
            continue
        name = record["Package"]
        words = _WORD.findall(" ".join((record.get("Description", ""), record["Section"])))
        parts = [*re.split(r"[-.+]", name), *words, "section " + record["Section"]]
        features.append([_hashed(part.lower()) for part in parts])
        labels.append([ids.setdefault(one, len(ids)) for one in needed])
        source = record.get("Source", name).split()[0]
        is_test.append(_hashed(source) % 10 == 0)
    return _padded(features), _padded(labels, 32, -1), np.array(is_test)


def python_tokens(examples=2_000_000, least_count=3):
    """Six tokens of a Python program -> the next: a power law, split by file."""
    folder = pathlib.Path(sysconfig.get_paths()["purelib"])
    files = sorted(
        folder.rglob("*.py"), key=lambda file: _hashed(str(file.relative_to(folder)))
    )
    ids, tokens, of_file, total = {}, [], [], 0
    for number, file in enumerate(files):
        text = file.read_text("utf-8", "replace")[:40_000]
        found = [ids.setdefault(token, len(ids)) for token in _TOKEN.findall(text)]
        tokens.append(np.array(found, np.int64))
        of_file.append(np.full(len(found), number))
        total += len(found)
        if total > 4 * examples:
            break
    tokens, of_file = np.concatenate(tokens), np.concatenate(of_file)
    kept = np.bincount(tokens)[tokens] >= least_count
    kept &= np.array([token.isidentifier() for token in ids])[tokens]
    kept[:6] = False
    rows = np.flatnonzero(kept)
    rows = np.sort(np.random.default_rng(0).permutation(rows)[:examples])
    before = tokens[rows[:, None] - np.arange(1, 7)]
    hashed = (before * 7 + np.arange(6)) * 2_654_435_761 % (2**31) % (_ROWS - 1) + 1
    _, labels = np.unique(tokens[rows], return_inverse=True)
    return hashed.astype(np.int32), labels, of_file[rows] % 20 == 0


def clusters(num_classes=100_000, examples=800_000, dim=64, noise=0.9):
    """Noisy vectors -> their class: 4,000 clusters of similar classes, a mild power law."""
    rng = np.random.default_rng(0)

    def directions(count):
        rows = rng.standard_normal((count, dim), "f4")
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    own, shared = directions(num_classes), directions(4_000)
    of_class = own + shared[rng.integers(0, len(shared), num_classes)]
    labels = (num_classes * rng.random(examples) ** 1.5).astype(np.int64)
    noises = rng.standard_normal((examples, dim), "f4") * (noise / np.sqrt(dim))
    return of_class[labels] + noises, labels, np.arange(examples) % 100 == 0


PROBLEMS = {
    one.__name__: one
    for one in (word_forms, package_queries, package_depends, python_tokens, clusters)
}


def load(
    name, batch_size, seed, on_validation=False, folder="benchmark-results/start-problems"
):
    """Returns a problem of this module or of the benchmarks: a `Task`, and training arrays.

    Args:
        name: Key of `PROBLEMS` or of `tasks.TASKS`.
        batch_size: Size of the training batches.
        seed: Seed of their order. Only for the tasks of the benchmarks.
        on_validation: See `tasks.load`. Only for the tasks of the benchmarks.
        folder: Where the arrays of a problem are kept.
    """
    if name not in PROBLEMS:
        return _of_benchmarks(name, batch_size, seed, on_validation)
    path = pathlib.Path(folder) / f"{name}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        features, labels, is_test = PROBLEMS[name]()
        np.savez(
            path, features=features, labels=_by_frequency(labels, is_test), is_test=is_test
        )
    data = np.load(path)
    features, labels, is_test = data["features"], data["labels"], data["is_test"]
    known = labels[~is_test]
    num_classes = int(labels.max()) + 1
    return tasks.Task(
        num_classes=num_classes,
        num_features=_ROWS if features.dtype == np.int32 else 0,
        train=None,
        test=(features[is_test], labels[is_test]),
        label_counts=np.bincount(known[known >= 0], minlength=num_classes),
        num_examples=len(known),
    ), (features[~is_test], known)


def _of_benchmarks(name, batch_size, seed, on_validation):
    """Returns a task, and its training examples in the order of an epoch."""
    task = tasks.load(name, batch_size, seed, on_validation)
    batches = task.train.take(task.num_examples // batch_size)
    return task, tasks.collect(batches)


def _by_frequency(labels, is_test):
    """Returns the labels, renumbered in descending order of their training counts."""
    known = labels[~is_test]
    counts = np.bincount(known[known >= 0], minlength=labels.max() + 1)
    _, rank = frequency_order(counts)
    return np.where(labels >= 0, rank[np.maximum(labels, 0)], -1)


def _packages():
    """Returns the records of the package lists, as dicts of fields, one per name."""
    text = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, check=True).stdout
    records = {}
    for block in text.decode().split("\n\n"):
        lines = re.sub(r"\n[ \t]", " ", block).split("\n")
        record = dict(line.split(": ", 1) for line in lines if ": " in line)
        if record:
            records.setdefault(record["Package"], record)
    return list(records.values())


def _hashed(text):
    digest = hashlib.blake2b(text.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") % (_ROWS - 1) + 1


def _padded(rows, width=_BAG, padding=0):
    result = np.full((len(rows), width), padding, np.int64 if padding else np.int32)
    for to, row in zip(result, rows, strict=True):
        row = row[:width]
        to[: len(row)] = row
    return result
