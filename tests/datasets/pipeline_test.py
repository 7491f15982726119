import numpy as np
import pytest

from tf_largeout.datasets.corpus import Corpus
from tf_largeout.datasets.pipeline import Pipeline
from tf_largeout.datasets.ragged import Ragged, TextTable


def corpus(num_examples=50, labels_per_example=1):
    """Example i has features 1 ... i % 3 + 1 and labels i, i + 1, ..."""
    numbers = range(num_examples)
    label_lengths = [1 if labels_per_example == 1 else i % labels_per_example for i in numbers]
    texts = TextTable.from_strings([str(i) for i in range(num_examples + 10)])
    return Corpus(
        features=ragged([range(1, i % 3 + 2) for i in numbers]),
        labels=ragged([range(i, i + n) for i, n in enumerate(label_lengths)]),
        example_texts=texts,
        class_texts=texts,
        group_hashes=np.zeros(num_examples, np.uint64),
        num_train=num_examples,
        vocabulary_size=4,
    )


def ragged(rows):
    values = np.array([value for row in rows for value in row], np.int32)
    return Ragged.from_lengths(values, [len(row) for row in rows])


def labels_of(dataset):
    return np.concatenate([labels.numpy() for _, labels in dataset]).tolist()


def test_without_seed_batches_are_in_order():
    dataset = Pipeline(corpus(), single_label=True).dataset(np.arange(5, 50), 20)
    assert labels_of(dataset) == list(range(5, 50))
    assert [len(labels) for _, labels in dataset] == [20, 20, 5] and len(dataset) == 3


def test_each_epoch_has_its_own_permutation_that_each_run_repeats():
    def epochs():
        dataset = Pipeline(corpus(), True).dataset(np.arange(50), 20, shuffle_seed=7)
        return labels_of(dataset), labels_of(dataset), len(dataset)

    first, second, num_batches = epochs()
    assert sorted(first) == sorted(second) == list(range(50)) and num_batches == 3
    assert first != second and first != list(range(50))
    assert epochs() == (first, second, 3)


def test_different_seeds_give_different_orders():
    pipeline = Pipeline(corpus(), True)
    orders = [labels_of(pipeline.dataset(np.arange(50), 20, seed)) for seed in (0, 1)]
    assert orders[0] != orders[1]


def test_features_are_padded_with_zero_to_one_width():
    (features, labels), *_ = Pipeline(corpus(), True).dataset(np.arange(50), 3)
    np.testing.assert_array_equal(features, [[1, 0, 0], [1, 2, 0], [1, 2, 3]])
    assert features.dtype == "int32" and labels.dtype == "int64" and labels.shape == (3,)


def test_labels_are_padded_with_minus_one_to_the_longest_row_of_the_batch():
    pipeline = Pipeline(corpus(labels_per_example=4), single_label=False)
    batches = [labels.numpy().tolist() for _, labels in pipeline.dataset(np.arange(5), 3)]
    assert batches == [[[-1, -1], [1, -1], [2, 3]], [[3, 4, 5], [-1, -1, -1]]]


def test_max_labels_keeps_the_first_labels():
    pipeline = Pipeline(corpus(labels_per_example=4), single_label=False)
    ((_, labels),) = pipeline.dataset(np.arange(4), 4, max_labels=2)
    np.testing.assert_array_equal(labels, [[-1, -1], [1, -1], [2, 3], [3, 4]])


@pytest.mark.parametrize("seed", [None, 0])
def test_without_a_batch_size_a_dataset_has_single_examples(seed):
    dataset = Pipeline(corpus(), True).dataset(np.arange(50), None, seed)
    assert len(dataset) == 50 and sorted(int(label) for _, label in dataset) == list(range(50))
    assert dataset.element_spec[0].shape == (3,)
