"""Names of classes in an export."""

import os

import numpy as np
import pytest
import tensorflow as tf

from tests.serving import models
from tests.slow import slow_but
from tf_largeout import serving

NAMES = [f"class {number}" for number in range(models.N)]
NAMES[:4] = ["", "京都, Kyōto\u2028\x0b ", "class 0", " twice"]


def text_file(folder):
    path = folder / "my names.txt"
    path.write_text("".join(f"{name}\n" for name in NAMES), "utf-8")
    return path


@pytest.mark.parametrize(
    "given",
    slow_but([text_file], [lambda _: NAMES, lambda _: np.array(NAMES), text_file]),
    ids=["list", "array", "file"],
)
@pytest.mark.parametrize("ops", slow_but(["custom"], ["core", "custom"]))
def test_names_are_an_asset_of_the_export(ops, given, tmp_path):
    path = tmp_path / "export"
    names = given(tmp_path)
    sizes = serving.export(models.new_model("large"), path, ops=ops, class_names=names)
    loaded = tf.saved_model.load(str(path))
    asset = loaded.class_names.asset_path.numpy().decode()
    assert asset == str(path / "assets" / "class_names.txt")
    with open(asset, encoding="utf-8", newline="\n") as file:
        assert file.read().split("\n")[:-1] == NAMES
    assert sizes["assets"] >= os.path.getsize(asset)
    answer = loaded.signatures["serving_default"](features=tf.constant(models.X))
    assert answer["ids"].shape == (models.BATCH, 10)


def test_without_names_there_is_no_asset(tmp_path):
    serving.export(models.new_model("large"), tmp_path / "1")
    assert not any((tmp_path / "1" / "assets").glob("*"))


def short_file(folder):
    path = folder / "names.txt"
    path.write_text("one\r\ntwo")
    return path


def latin_1(folder):
    path = folder / "names.txt"
    path.write_bytes("Köln\n".encode("latin-1"))
    return path


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (NAMES[1:], "each of the 211 classes.* Received: 210 names"),
        ([*NAMES, ""], "Received: 212 names"),
        ([*NAMES[:7], "a\nb", *NAMES[8:]], r"class_names\[7\]='a\\nb'"),
        ([None, *NAMES[1:]], r"class_names\[0\]=None"),
        ([b"bytes", *NAMES[1:]], r"class_names\[0\]=b'bytes'"),
        (["\ud800", *NAMES[1:]], "UTF-8 can encode"),
        (dict(enumerate(NAMES)), "type dict"),
        (7, "type int"),
        (short_file, "Received: 2 names"),
        (latin_1, "UTF-8 can encode"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_names_raise_an_error(names, message, tmp_path):
    names = names(tmp_path) if callable(names) else names
    with pytest.raises(ValueError, match=f"`class_names` must (?s:.*){message}"):
        serving.export(models.new_model("large"), tmp_path / "1", class_names=names)
    assert not (tmp_path / "1").exists()


def test_a_missing_file_of_names_raises_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing.txt"):
        serving.export(
            models.new_model("large"), tmp_path / "1", class_names=tmp_path / "missing.txt"
        )
