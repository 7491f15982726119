"""All functions of the kernel source that call other functions, and their identifiers."""

import dataclasses

import numpy as np

from tf_largeout.datasets.hashing import md5_uint64
from tf_largeout.datasets.linux_callees.c_functions import Batch
from tf_largeout.datasets.linux_callees.source_tree import is_test
from tf_largeout.datasets.ragged import Ragged
from tf_largeout.datasets.storable import Storable
from tf_largeout.datasets.text_table import TextTable


@dataclasses.dataclass(frozen=True)
class FunctionTable(Storable):
    """The parsed kernel source; every vocabulary of labels is computed from it.

    Attributes:
        features: Ids of each function's features.
        labels: Ids of the identifiers in each function's body.
        kinds: uint8, the kinds of each label in `labels.values`, a sum of flags such as
            `c_functions.CALLED`.
        words: The texts of features and identifiers, in the order of their ids.
        texts: `path: name` of each function.
        files: Paths of the files.
        file_of: int32, index of each function's file.
    """

    features: Ragged
    labels: Ragged
    kinds: np.ndarray
    words: TextTable
    texts: TextTable
    files: TextTable
    file_of: np.ndarray

    def is_test(self):
        """Returns for each function whether it is in the test split: `md5(path) % 10 == 0`."""
        return np.array([is_test(path) for path in self.files], bool)[self.file_of]

    def group_hashes(self):
        """Returns uint64, a hash of the path of each function's file."""
        return md5_uint64(self.files)[self.file_of]

    @classmethod
    def from_batches(cls, batches):
        """Merges the results of `ParserWorkers.parse`: paths, and the fields of a `Batch`."""
        ids, files, texts = {}, [], []
        columns = {name: [] for name in _COLUMNS}
        for paths, fields in batches:
            batch = Batch(**fields)
            global_ids = [ids.setdefault(word, len(ids)) for word in batch.words]
            global_ids = np.array(global_ids, np.int32)
            for name in ("features", "labels"):
                columns[name].append(global_ids[np.array(getattr(batch, name), np.int64)])
            for name in ("kinds", "feature_lengths", "label_lengths"):
                columns[name].append(np.array(getattr(batch, name), np.int32))
            columns["file_of"].append(np.array(batch.files, np.int32) + len(files))
            for file, name in zip(batch.files, batch.names, strict=True):
                texts.append(f"{paths[file]}: {batch.words[name]}")
            files += paths
        joined = {name: np.concatenate(parts) for name, parts in columns.items()}
        return cls(
            features=Ragged.from_lengths(joined["features"], joined["feature_lengths"]),
            labels=Ragged.from_lengths(joined["labels"], joined["label_lengths"]),
            kinds=joined["kinds"].astype(np.uint8),
            words=TextTable.from_strings(list(ids)),
            texts=TextTable.from_strings(texts),
            files=TextTable.from_strings(files),
            file_of=joined["file_of"],
        )


_COLUMNS = ("features", "feature_lengths", "labels", "label_lengths", "kinds", "file_of")
