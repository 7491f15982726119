import numpy as np
import pytest

from lab.corpora.text import TokenPipeline

TOKENS = np.arange(100, 150, dtype=np.int32)


def arrays(dataset):
    tokens, labels = zip(*dataset.as_numpy_iterator(), strict=True)
    return np.concatenate(tokens), np.concatenate(labels)


@pytest.mark.parametrize("start, end", [(0, 50), (3, 34), (3, 33), (3, 35), (10, 12)])
def test_each_token_but_the_first_is_predicted_once_from_the_one_before(start, end):
    tokens, labels = arrays(TokenPipeline(TOKENS, 10).dataset(start, end, 2))
    known = labels >= 0
    np.testing.assert_array_equal(labels[known], TOKENS[start + 1 : end])
    np.testing.assert_array_equal(tokens[known] + 1, labels[known])
    assert tokens.dtype == np.int32 and labels.dtype == np.int64
    assert set(tokens[:, 1:][~known[:, :-1]]) <= {0}
    assert len(tokens) == len(TokenPipeline(TOKENS, 10).windows(start, end))


@pytest.mark.parametrize("end", [20, 21])
def test_a_range_with_fewer_than_two_tokens_has_no_windows(end):
    assert not len(TokenPipeline(TOKENS, 10).windows(20, end))


def test_windows_are_shuffled_differently_in_each_epoch():
    dataset = TokenPipeline(TOKENS, 5).dataset(0, 50, 4, shuffle_seed=1)
    first, second = arrays(dataset)[0][:, 0], arrays(dataset)[0][:, 0]
    assert sorted(first) == sorted(second) == list(TOKENS[::5]) and len(dataset) == 3
    assert first.tolist() != second.tolist()


def test_without_batch_size_windows_are_single():
    dataset = TokenPipeline(TOKENS, 5).dataset(0, 50, None)
    assert len(dataset) == 10 and dataset.element_spec[0].shape == (5,)
