import json
import pathlib

import pytest

from lab.factored import steps
from lab.factored.step_case import METHODS, Shape
from lab.shared.factored_heads import FACTORED_HEADS

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch):
    monkeypatch.setattr(steps, "measure", lambda function, *args: function(*args))


def test_the_lab_has_the_rates_of_the_guide():
    guide = (ROOT / "docs" / "guides" / "factored_output.md").read_text()
    smaller = {"taylor": "4 times", "spherical": "a fifth of", "z": "a tenth of"}
    factors = {"4 times": 4, "a fifth of": 0.2, "a tenth of": 0.1}
    for name, head in FACTORED_HEADS.items():
        words = f"{smaller[name]} the batch size" if name in smaller else "0.2"
        own = f"`{head.loss.__name__}`" + (", features of length 1" * head.from_zero)
        assert f"| {own} | {head.class_rate:,g} | {words} |" in guide
        expected = factors[smaller[name]] * 128 if name in smaller else 0.2
        assert head.rate_for(128) == pytest.approx(expected, rel=0.03)
        assert head.rate_for(512) == head.rate_for(2048) == head.class_rate


@pytest.mark.slow
def test_every_method_is_measured_and_drawn(tmp_path):
    json_path, png_path = tmp_path / "f.json", tmp_path / "f.png"
    arguments = "--num-classes 60 --dim 6 --batch-size 5 --num-sampled 7 --steps 3 --seconds 1 "
    steps.main(f"{arguments} --json {json_path} --png {png_path}".split())
    rows = json.loads(json_path.read_text())["rows"]
    assert [row["method"] for row in rows] == list(METHODS)
    assert all(row["ms_10"] <= row["ms"] <= row["ms_90"] for row in rows)
    assert all(row["cpu_ms"] > 0 for row in rows)
    assert png_path.stat().st_size > 10_000


@pytest.mark.slow
def test_whole_models_are_measured_too(tmp_path):
    arguments = f"--num-classes 60 --dim 6 --batch-size 5 --steps 3 --png {tmp_path}/f.png"
    methods = ["factored, squared error", "dense, squared error"]
    report = steps.main([*arguments.split(), "--context", "0", "4", "--methods", *methods])
    rows = [(row["context"], row["method"]) for row in report["rows"]]
    assert rows == [(0, methods[0]), (0, methods[1]), (4, methods[0]), (4, methods[1])]
    assert all(row["cpu_ms"] > 0 for row in report["rows"])


@pytest.mark.slow
def test_upkeep_is_reported_for_each_loss(tmp_path):
    arguments = f"--num-classes 60 --dim 6 --batch-size 5 --upkeep 3 --png {tmp_path}/f.png"
    methods = ["--methods", "factored, Z-loss", "--steps", "1"]
    report = steps.main([*arguments.split(), *methods])
    rows = report["upkeep_rows"]
    assert [row["method"] for row in rows] == [f"upkeep, {name}" for name in FACTORED_HEADS]
    assert all(row["upkeep"] < 1 and row["steps"] == 3 for row in rows)


@pytest.mark.slow
def test_dense_layers_are_skipped_above_most_dense(tmp_path):
    arguments = f"--num-classes 60 --most-dense 50 --steps 1 --png {tmp_path}/f.png --dim 4"
    methods = ["dense, softmax", "tf.nn.sampled_softmax_loss"]
    report = steps.main([*arguments.split(), "--num-sampled", "7", "--methods", *methods])
    assert [row["method"] for row in report["rows"]] == methods[1:]


def test_operations_equal_the_formulas():
    """At the paper's sizes, seven large products are most of the operations."""
    found = steps.flops(Shape(793_471, dim=300, batch_size=128))
    assert 7 * 2 * 128 * 301**2 < found < 1.4 * 7 * 2 * 128 * 301**2


def test_operations_of_batches_above_the_width():
    found = steps.flops(Shape(793_471, dim=300, batch_size=1024))
    assert found == 2 * (6 * 1024 * 301**2 + 13 / 3 * 301**3)
