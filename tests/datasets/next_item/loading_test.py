"""Each published format is read, and damaged files raise an error that names them."""

import gzip
import hashlib
import json
import zipfile

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from tests.datasets.sources import pinned
from tests.reference import histories as reference
from tf_largeout import datasets
from tf_largeout.datasets.next_item import files

ROWS = [
    ("3", "NA", 40),  # A name that pandas would take for a missing value.
    ("1", "20", 30),
    ("1", "10", 10),
    ("1", "30", 30),
    ("3", "20", 5),
    ("2", "20", 7),
    ("1", "10", 35),
]
YAMBDA = [(int(u), 99 if i == "NA" else int(i), t) for u, i, t in ROWS]
CSV_2023 = "user_id,parent_asin,rating,timestamp\n"
INTER = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"


def _date(seconds):
    return f"{np.datetime64(seconds, 's')}Z"


def _text(line):
    return "".join(line(*row) + "\n" for row in ROWS)


def _json(user, item, time):
    return _text(lambda u, i, t: json.dumps({item: i, "text": "x", user: u, time: t}))


TEXTS = {
    ("movielens", "u.data"): _text(lambda u, i, t: f"{u}\t{i}\t5\t{t}"),
    ("movielens", "ratings.dat"): _text(lambda u, i, t: f"{u}::{i}::5::{t}"),
    ("movielens", "ratings.csv"): "userId,movieId,rating,timestamp\n"
    + _text(lambda u, i, t: f"{u},{i},5,{t}"),
    ("gowalla", "loc-gowalla_totalCheckins.txt"): _text(
        lambda u, i, t: f"{u}\t{_date(t)}\t1.5\t-2.5\t{i}"
    ),
    ("amazon_2014", "ratings_Beauty.csv"): _text(lambda u, i, t: f"{u},{i},5.0,{t}"),
    ("amazon_2018", "All_Beauty.csv"): _text(lambda u, i, t: f"{i},{u},5.0,{t}"),
    ("amazon_2018", "All_Beauty.json"): _json("reviewerID", "asin", "unixReviewTime"),
    ("amazon_2023", "All_Beauty.csv"): CSV_2023 + _text(lambda u, i, t: f"{u},{i},5.0,{t}"),
    ("amazon_2023", "All_Beauty.jsonl"): _json("user_id", "parent_asin", "timestamp"),
    ("recbole", "x.inter"): INTER + _text(lambda u, i, t: f"{u}\t{i}\t5\t{t}"),
}
ZIPPED = ("movielens", "recbole")  # Published as zip files, the others as gzip files.


def _named_histories(data):
    return {
        user: data.item_names[data.history(row)].tolist()
        for row, user in enumerate(data.user_names)
    }


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("format, name", TEXTS)
def test_text_formats(format, name, compressed, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "CHUNK", 3)
    monkeypatch.setattr(files, "LINES", 3)
    content = TEXTS[format, name].encode()
    if compressed and format in ZIPPED:
        path = tmp_path / ("ml-x.zip" if format == "movielens" else "x.zip")
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"x/{name}", content)
            archive.writestr("x/README", b"")
    elif compressed:
        path = tmp_path / f"{name}.gz"
        path.write_bytes(gzip.compress(content))
    else:
        path = tmp_path / name
        path.write_bytes(content)
    expected = reference.histories(ROWS)
    assert _named_histories(datasets.interactions(path, format)) == expected
    if not (compressed and format == "recbole"):
        found = datasets.interactions(tmp_path, format, k_core=2)
        assert _named_histories(found) == reference.histories(ROWS, 2)


def _write_flat(path, rows, **more):
    uid, item_id, timestamp = zip(*rows, strict=True)
    columns = {"uid": uid, "timestamp": timestamp, "item_id": item_id} | more
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def test_yambda_flat(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BATCH", 3)
    _write_flat(tmp_path / "likes.parquet", YAMBDA)
    data = datasets.interactions(tmp_path, "yambda")
    expected = reference.histories([tuple(map(str, row[:2])) + row[2:] for row in YAMBDA])
    assert _named_histories(data) == expected


@pytest.mark.parametrize("events", [("listen",), ("listen", "like"), None])
def test_yambda_with_several_events(events, tmp_path):
    kinds = ["like", "listen", "listen", "unlike", "listen", "like", "dislike"]
    path = tmp_path / "multi_event.parquet"
    _write_flat(path, YAMBDA, event_type=kinds)
    rows = [
        (str(u), str(i), t)
        for (u, i, t), kind in zip(YAMBDA, kinds, strict=True)
        if events is None or kind in events
    ]
    data = datasets.interactions(path, "yambda", events=events)
    assert _named_histories(data) == reference.histories(rows)


@pytest.mark.parametrize("has_events", [False, True])
def test_yambda_sequential(has_events, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BATCH", 64)  # One user at a time.
    columns = {"uid": [1, 2, 3], "timestamp": [[1, 2, 9], [], [4]]}
    columns["item_id"] = [[5, 6, 5], [], [7]]
    if has_events:
        columns["event_type"] = [["listen", "like", "listen"], [], ["listen"]]
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "x.parquet")
    data = datasets.interactions(tmp_path, "yambda")
    assert _named_histories(data) == {
        "1": ["5", *([] if has_events else ["6"]), "5"],
        "3": ["7"],
    }


def test_ml_100k_comes_from_the_wheel_of_recbole(tmp_path, monkeypatch):
    manual = tmp_path / "downloads" / "manual"
    manual.mkdir(parents=True)
    path = manual / files.WHEEL.name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{files._FOLDER}/ml-100k.inter", TEXTS["recbole", "x.inter"])
    monkeypatch.setattr(files, "WHEEL", pinned(files.WHEEL, path))
    data = datasets.ml_100k(data_dir=tmp_path)
    assert _named_histories(data) == reference.histories(ROWS)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(datasets.SourceFileError, match="damaged"):
        datasets.ml_100k(data_dir=tmp_path)


def test_ratings_of_ml_100k_have_stars_and_titles(tmp_path, monkeypatch):
    manual = tmp_path / "downloads" / "manual"
    manual.mkdir(parents=True)
    path = manual / files.WHEEL.name
    inter = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n"
    item = "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            f"{files._FOLDER}/ml-100k.inter", inter + "7\t4\t3\t9\n7\t2\t5\t8\n1\t4\t1\t7\n"
        )
        archive.writestr(f"{files._FOLDER}/ml-100k.item", item + "2\tBrazil\t\t\n4\tM\t\t\n")
    monkeypatch.setattr(files, "WHEEL", pinned(files.WHEEL, path))
    found = datasets.ml_100k_ratings(data_dir=tmp_path)
    names = found.user_names[found.users], found.item_names[found.items]
    assert list(zip(*names, found.values, strict=True)) == [
        ("1", "M", 1),
        ("7", "Brazil", 5),
        ("7", "M", 3),
    ]
    assert repr(found) == "<Ratings: 3 of 2 users for 2 items>"


def _error(path, format, content, **options):
    path.write_bytes(content)
    with pytest.raises(datasets.SourceFileError) as error:
        datasets.interactions(path, format, **options)
    assert str(path) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("format, name", TEXTS)
def test_empty_and_binary_files_raise_an_error(format, name, tmp_path):
    assert "Download it again" in _error(tmp_path / name, format, b"")
    _error(tmp_path / name, format, b"\x00\xff\x80" * 100)


@pytest.mark.parametrize("format, name", TEXTS)
def test_a_row_that_ends_early_is_named(format, name, tmp_path):
    content = TEXTS[format, name].encode()[:-4]  # Without the end of the last time or item.
    cut = content.rindex(b"\n") + 4
    message = _error(tmp_path / name, format, content[:cut])
    assert "7" in message or "Row" in message


@pytest.mark.parametrize("format, name", [key for key in TEXTS if key[0] not in ZIPPED])
def test_a_damaged_gzip_file_raises_an_error(format, name, tmp_path):
    content = gzip.compress(TEXTS[format, name].encode() * 200)
    _error(tmp_path / f"{name}.gz", format, content[:-20])
    _error(tmp_path / f"{name}.gz", format, b"no gzip file")


@pytest.mark.parametrize(
    "format, name, content, words",
    [
        ("movielens", "ratings.csv", b"user,movie,timestamp\n1,2,3\n", "userId, movieId"),
        ("movielens", "u.data", b"1,2,3,4\n", "separated by tabs"),
        ("movielens", "u.data", b"1\t2\t3\t4\n1\t2\t3\tnow\n", "Row 2 has the user '1'"),
        ("movielens", "u.item", b"1|Toy Story\n", "u.data, ratings.dat"),
        ("movielens", "x.zip", b"PK", "damaged"),
        ("gowalla", "loc-gowalla_totalCheckins.txt", b"1\t2010\t1\t2\t3\n", "Row 1"),
        ("amazon_2018", "x.json", b'{"reviewerID": "a", "asin": "b"}\n', "unixReviewTime"),
        ("amazon_2018", "x.json", b"[1]\n", "line 1"),
        ("yambda", "likes.parquet", b"PAR1", "Parquet"),
    ],
)
def test_wrong_content_raises_an_error(format, name, content, words, tmp_path):
    assert words in _error(tmp_path / name, format, content)


def test_a_parquet_file_without_a_column_raises_an_error(tmp_path):
    path = tmp_path / "likes.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"uid": [1], "item_id": [2]}), path)
    with pytest.raises(datasets.SourceFileError, match="It lacks timestamp, and has uid"):
        datasets.interactions(path, "yambda")


def test_the_number_of_ratings_of_an_extracted_archive_is_checked(tmp_path):
    folder = tmp_path / "ml-1m"
    folder.mkdir()
    (folder / "ratings.dat").write_text(TEXTS["movielens", "ratings.dat"])
    with pytest.raises(datasets.SourceFileError, match="Expected 1,000,209 ratings .* has 7"):
        datasets.interactions(folder, "movielens")


def test_the_md5_of_a_published_archive_is_checked(tmp_path, monkeypatch):
    path = tmp_path / "ml-1m.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ml-1m/ratings.dat", TEXTS["movielens", "ratings.dat"])
    with pytest.raises(datasets.SourceFileError, match="expected md5 c4d9eecf"):
        datasets.interactions(path, "movielens")
    found = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    monkeypatch.setitem(files._MOVIELENS, "ml-1m", (found, 7))
    assert len(datasets.interactions(path, "movielens")) == 7


def test_missing_and_several_files_raise_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(datasets.SourceFileError, match=f"{tmp_path}/absent is missing"):
        datasets.interactions("~/absent", "gowalla")
    with pytest.raises(datasets.SourceFileError, match="absent is missing"):
        datasets.interactions(tmp_path / "absent", "gowalla")
    with pytest.raises(datasets.SourceFileError, match="no file of the format 'gowalla'"):
        datasets.interactions(tmp_path, "gowalla")
    for name in ("likes", "listens"):
        _write_flat(tmp_path / f"{name}.parquet", YAMBDA)
    with pytest.raises(datasets.SourceFileError, match="likes.parquet, listens.parquet"):
        datasets.interactions(tmp_path, "yambda")
    with pytest.raises(ValueError, match="`format` must be"):
        datasets.interactions(tmp_path, "ml")
