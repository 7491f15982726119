import numpy as np
import pytest

from tests.datasets.places import many_places, place, write_wheel
from tf_largeout.datasets import SourceFileError, place_names


@pytest.fixture
def corpus(tmp_path):
    return place_names.parse_wheel(write_wheel(tmp_path / "wheel.whl", many_places()))


def test_a_name_of_two_places_is_dropped():
    names, owners = place_names.unambiguous_names(
        [place(1, "Berlin", ["Berlino", "Newton"]), place(2, "Newton", ["Newton", " Neu "])]
    )
    assert dict(zip(names, owners, strict=True)) == {"Berlin": 1, "Berlino": 1, "Neu": 2}


def test_one_name_of_a_tenth_of_the_places_is_for_testing(corpus):
    assert corpus.num_examples == 40 // 4 * (1 + 2 + 3 + 4)
    assert corpus.num_examples - corpus.num_train == 3  # 30 places have two names or more.
    tested = corpus.labels.values[corpus.num_train :]
    assert len(set(tested)) == 3


def test_every_class_is_in_the_training_split_and_no_name_in_both(corpus):
    names = [corpus.example_texts[i] for i in range(corpus.num_examples)]
    assert len(set(names)) == len(names)
    assert corpus.label_counts(np.arange(corpus.num_train)).min() >= 1


def test_the_split_does_not_depend_on_the_order_of_the_source(tmp_path, corpus):
    backwards = place_names.parse_wheel(write_wheel(tmp_path / "b.whl", many_places()[::-1]))

    def tested(c):
        return {c.example_texts[i] for i in range(c.num_train, c.num_examples)}

    assert tested(backwards) == tested(corpus)


def test_class_ids_are_in_descending_order_of_training_counts(corpus):
    counts = corpus.label_counts(np.arange(corpus.num_train))
    assert (np.diff(counts) <= 0).all()


def test_examples_have_the_features_and_the_class_of_their_name(corpus):
    for i in range(corpus.num_examples):
        name = corpus.example_texts[i]
        (row,) = place_names.encode([name])
        np.testing.assert_array_equal(corpus.features.row(i), row[row > 0])
        assert corpus.class_texts[corpus.labels.row(i)[0]].startswith(name.split()[0] + ",")


def test_a_class_is_shown_with_country_and_population():
    countries = {"US": {"name": "United States"}}
    springfield = place(7, "Springfield", countrycode="US", admin1code="IL", population=116250)
    assert place_names.place_text(springfield, countries) == (
        "Springfield, IL, United States (population 116,250; GeoNames 7)"
    )
    unknown = place(8, "Nowhere", countrycode="XX", population=0)
    assert place_names.place_text(unknown, countries) == "Nowhere, XX (GeoNames 8)"


def test_a_file_that_is_not_a_gazetteer_raises_an_error(tmp_path):
    path = tmp_path / "wheel.whl"
    path.write_bytes(b"PK no zip at all")
    with pytest.raises(SourceFileError, match="Expected .* to be a wheel"):
        place_names.parse_wheel(path)
