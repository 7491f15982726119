import numpy as np
import pytest

from tf_largeout.datasets import place_names


def test_every_ngram_of_a_short_name_is_a_feature():
    (row,) = place_names.encode(["Ulm"])
    # With its two boundary marks: 4 bigrams, 3 trigrams, 2 fourgrams.
    assert np.count_nonzero(row) == 9
    assert len(set(row[:9])) == 9
    assert not row[9:].any()


def test_ids_are_below_the_number_of_rows_of_the_table():
    rows = place_names.encode(["Llanfairpwllgwyngyll", "東京都", "Москва", ""])
    assert rows.dtype == np.int32 and rows.shape == (4, place_names.MAX_FEATURES)
    assert rows.min() == 0 and rows.max() < place_names.VOCABULARY_SIZE


def test_the_features_of_a_name_do_not_depend_on_other_names():
    names = ["Kyōto", "京都", "Q", "San José de las Lajas del Norte"]
    together = place_names.encode(names)
    for name, row in zip(names, together, strict=True):
        np.testing.assert_array_equal(place_names.encode([name])[0], row)


def test_case_width_and_spaces_do_not_matter():
    first, second = place_names.encode(["New  York", " ＮＥＷ york "])
    np.testing.assert_array_equal(first, second)


def test_words_share_the_ngrams_of_their_own_boundaries():
    both, york = place_names.encode(["New York", "York"])
    assert set(york[york > 0]) <= set(both)


def test_a_long_name_keeps_its_short_ngrams():
    name = "abcdefghijklmnopqrstuvwxyz"
    full, cut = place_names.encode([name], 100)[0], place_names.encode([name], 40)[0]
    np.testing.assert_array_equal(cut, full[:40])
    assert np.count_nonzero(full) == 27 + 26 + 25


def test_an_empty_list_gives_an_empty_array():
    assert place_names.encode([]).shape == (0, place_names.MAX_FEATURES)


@pytest.mark.parametrize("names", ["Kyoto", [3], [None], None, 5, [b"Kyoto"]])
def test_anything_but_a_list_of_strings_raises_an_error(names):
    with pytest.raises(ValueError, match="must be a list of strings"):
        place_names.encode(names)


@pytest.mark.parametrize("width", [0, -1, 2.5, True, None, "40"])
def test_a_width_is_a_positive_integer(width):
    with pytest.raises(ValueError, match="`max_features` must be a positive integer"):
        place_names.encode(["Kyoto"], width)
