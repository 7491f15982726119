"""The evaluation of the comparison of next-item models agrees with a slow one."""

import numpy as np

from lab.next_item import compare, watch

NUM_CLASSES, NUM_USERS = 40, 30


def _data(rng):
    target = rng.integers(1, NUM_CLASSES, NUM_USERS)
    seen = rng.integers(0, NUM_CLASSES, [NUM_USERS, 12])
    seen[seen == target[:, None]] = 0
    history = rng.integers(0, NUM_CLASSES, [NUM_USERS, 5])
    return {"test_history": history, "test_target": target, "test_seen": seen}


def test_ranks_are_those_of_sorted_items():
    rng = np.random.default_rng(0)
    data, table = _data(rng), rng.standard_normal([NUM_CLASSES, 4])
    known = rng.random(NUM_CLASSES) < 0.9
    got = watch.ranks_of(data, "test", lambda ids: table[ids[:, -1]], table, known, batch=7)
    for kind in ("all", "unseen"):
        gains = []
        for history, target, seen in zip(*data.values(), strict=True):
            scores = table @ table[history[-1]]
            banned = {0, *np.flatnonzero(~known), *(seen if kind == "unseen" else [])}
            order = [item for item in np.argsort(-scores) if item not in banned][:10]
            place = order.index(target) if target in order else None
            gains.append(0.0 if place is None else 1 / np.log2(place + 2))
        np.testing.assert_allclose(got[kind]["ndcg"], np.mean(gains))
        np.testing.assert_allclose(got[kind]["hit_rate"], np.mean(np.array(gains) > 0))
    assert got["all"] != got["unseen"]


def test_the_most_popular_items_are_ranked_by_their_counts(tmp_path):
    rng = np.random.default_rng(0)
    counts = rng.permutation(NUM_CLASSES)
    counts[0] = 10**6  # of the padding, which is not ranked
    best = np.argsort(-counts)[1]
    data = _data(rng) | {"test_target": np.full(NUM_USERS, best), "counts": counts}
    data["test_target"][:9] = np.argsort(counts)[0]
    np.savez(tmp_path / "data.npz", **data)
    expected = {"ndcg": 21 / 30, "hit_rate": 21 / 30}
    assert compare.most_popular(tmp_path / "data.npz")["all"] == expected


def test_the_clock_starts_after_the_first_step_and_stops_for_evaluations(monkeypatch):
    now = [5.0]
    monkeypatch.setattr(watch.time, "process_time", lambda: now[0])

    def ranks_of(*_):
        now[0] += 100
        return {"all": {"ndcg": now[0], "hit_rate": 0.5}}

    monkeypatch.setattr(watch, "ranks_of", ranks_of)
    clock = watch.Watch(10, [0.5, 1], {})
    ends = []
    for _ in range(12):
        now[0] += 1.25
        ends.append(clock.step(None, lambda: None))
    assert ends == [False] * 8 + [True] * 4
    assert [(one["seconds"], one["steps"]) for one in clock.results] == [(5, 5), (10, 9)]
    assert clock.progress == 1


def test_the_table_shows_the_test_figures_of_the_best_validation():
    def result(seconds, validation, test):
        figures = {"hit_rate": test, "ndcg": test}
        own = {"validation": {"all": {"ndcg": validation}}, "test": {"all": figures}}
        return {"seconds": seconds, "steps": 10 * seconds, **own}

    run = {
        "method": "x",
        "peak_mib": 7.0,
        "results": [result(1, 0.2, 0.5), result(2, 0.1, 0.9)],
    }
    *_, row = compare.table([run]).splitlines()
    assert row == "| x | 50.0 | 50.0 | 1 | 20 | 100.0 | 7 |"
