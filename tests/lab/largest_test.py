"""Tests of `lab.largest`: the planted examples, and a run that is killed and continued."""

import h5py
import numpy as np
import pytest

from lab.largest import mapped_rows, planted, samplers, steps


def options(*arguments):
    return planted._parser().parse_args(["--num-classes", "6000", "--dim", "24", *arguments])


def test_codes_are_the_bits_of_splitmix64():
    state = 0x9E3779B97F4A7C15 * 5 % 2**64
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ state >> shift) * factor % 2**64
    state ^= state >> 31
    expected = [1 if state >> bit & 1 else -1 for bit in range(64)]
    np.testing.assert_array_equal(planted.codes(np.array([4, 9]), 64)[0], expected)


def test_a_pass_shows_each_class_once_with_few_inverted_signs():
    data = list(planted.examples(range(60), 100, 0, options("--inverted", "0.1")))
    labels = np.concatenate([labels for _, labels in data])
    np.testing.assert_array_equal(np.sort(labels), np.arange(6000))
    inverted = np.mean([signs != planted.codes(labels, 24) for signs, labels in data])
    assert inverted == pytest.approx(0.1, abs=0.01)


def test_differences_names_arrays_that_are_not_equal(tmp_path):
    paths = tmp_path / "one.h5", tmp_path / "other.h5"
    for path, last in zip(paths, (3, 4), strict=True):
        with h5py.File(path, "w") as file:
            file["layer/equal"] = np.arange(5)
            file["layer/different"] = np.array([1, 2, last])
    assert planted.differences(*paths) == ["layer/different"]


@pytest.mark.slow
def test_a_killed_run_continues_bit_identically(tmp_path):
    arguments = ["--num-classes", "40000", "--batch-size", "64", "--pieces", "1"]
    arguments += [
        "--passes",
        "2",
        "--dim",
        "32",
        "--num-sampled",
        "256",
        "--out",
        str(tmp_path),
    ]
    report = planted.main(arguments)
    assert report["pieces"][1]["precision_at_1"] > 0.3
    report = planted.main([*arguments, "--check"])
    assert report["was_killed"]
    assert report["different_arrays"] == []


@pytest.mark.slow
def test_steps_reports_each_size(tmp_path):
    arguments = ["--num-classes", "1000", "2000", "--steps", "20", "--num-sampled", "9"]
    arguments += ["--save", str(tmp_path / "a.weights.h5"), "--json", str(tmp_path / "a.json")]
    rows = steps.main(arguments)["rows"]
    assert [row["num_classes"] for row in rows] == [1000, 2000]
    assert all(row["ms"] > 0 and row["file_mb"] > 0 for row in rows)


@pytest.mark.slow
def test_samplers_reports_each_sampler(tmp_path):
    arguments = ["--num-classes", "3000", "--steps", "9", "--num-sampled", "64"]
    rows = samplers.main([*arguments, "--json", str(tmp_path / "a.json")])["rows"]
    assert [row["sampler"] for row in rows] == list(samplers.SAMPLERS)
    found = rows[-1]
    assert found["state_mb"] * 1e6 > (64 + 12) * 3000
    assert all(found[name] > 0 for name in ("fit_seconds", "update_seconds", "search_step_ms"))


@pytest.mark.parametrize("prefetched", [False, True])
def test_steps_with_mapped_rows_change_the_rows_of_the_file(prefetched, tmp_path):
    path = tmp_path / "rows"
    mapped_rows.create(path, 1 << 20)
    before = np.fromfile(path, "uint16").reshape(-1, 64)
    num_rows, ids = len(before), []

    def draw():
        ids.append(np.array([7, 7, 2 * len(ids)] + [num_rows - 1] * 1277))
        return ids[-1]

    with mapped_rows._mapped(path) as (_, mapping):
        run = mapped_rows._Steps(mapping, draw, np.ones(num_rows, "float32"), prefetched, 0.0)
        found = run.run(3)
    assert found["ms"] > 0 and found["reads"] >= 0
    changed = np.any(np.fromfile(path, "uint16").reshape(-1, 64) != before, axis=1)
    np.testing.assert_array_equal(np.flatnonzero(changed), [0, 2, 4, 7, num_rows - 1])


def test_labels_of_mapped_rows_follow_zipfs_law_in_either_order():
    shares = [1 / np.log2(17), np.log2(3 / 2) / np.log2(17)]
    for ids_of_rank, first in ((None, [0, 1]), (np.arange(16)[::-1], [15, 14])):
        draw = mapped_rows._Draw(16, ids_of_rank, uniform=True)
        labels = np.concatenate([draw()[:256] for _ in range(100)])
        found = [np.mean(labels == one) for one in first]
        np.testing.assert_allclose(found, shares, atol=5 * np.sqrt(0.25 / len(labels)))


def test_a_limit_without_a_cgroup_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped_rows, "_CGROUPS", tmp_path)
    with pytest.raises(SystemExit, match="--limit-mib needs .* version 1, and root.*Without"):
        with mapped_rows.memory_cgroup(10):
            pass
