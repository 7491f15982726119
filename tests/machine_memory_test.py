import keras
import pytest

import tf_largeout as tflo
from tf_largeout import arguments


@pytest.mark.parametrize(
    ("gib", "dtype", "message"),
    [
        (23, None, r'2,000,000 .* width 4096 in float32.*30\.5 GiB.*has 23\.0.*"bfloat16"'),
        (8, None, r"float32.*30\.5 GiB, and this machine has 8\.0 GiB\. Lower the width"),
        (8, "bfloat16", r"bfloat16.*15\.3 GiB.*Lower the width of the features"),
    ],
)
def test_class_rows_beyond_the_memory_raise_an_error(
    monkeypatch, tmp_path, gib, dtype, message
):
    (tmp_path / "limit").write_text(f"{gib * 2**30}\n")
    monkeypatch.setattr(arguments, "_LIMIT", tmp_path / "limit")
    layer = tflo.layers.LargeOutput(2_000_000, embeddings_dtype=dtype)
    with pytest.raises(ValueError, match=message):
        layer.build([None, 4096])
    assert not layer.weights


def test_without_a_limit_the_memory_is_that_of_the_machine(monkeypatch, tmp_path):
    monkeypatch.setattr(arguments, "_LIMIT", tmp_path / "none")
    whole = arguments.memory_of_machine()
    assert whole > 2**29
    (tmp_path / "none").write_text("max\n")
    assert arguments.memory_of_machine() == whole


def test_rows_that_fit_are_built(monkeypatch, tmp_path):
    (tmp_path / "limit").write_text("4000")
    monkeypatch.setattr(arguments, "_LIMIT", tmp_path / "limit")
    model = keras.Sequential([keras.Input([10]), tflo.layers.LargeOutput(100)])
    assert model.count_params() == 1100
