"""The comparison as a table and as JSON."""

import dataclasses
import json

from custom_ops.cuda.compare import ours
from custom_ops.cuda.compare.measure import TOLERANCES, Measurement
from custom_ops.cuda.compare.problem import Sizes

TITLES = {
    "sampled": "sampled softmax, gradients, Adam: {batch} x {sampled} of {classes}, {dim} wide",
    "loss": "exact softmax loss: {exact_batch} x {classes}, {dim} wide",
    "softmax": "exact softmax loss and gradients: {exact_batch} x {classes}, {dim} wide",
    "top_k": "the {top_k} best classes: {exact_batch} x {classes}, {dim} wide",
}
_COLUMNS = "  {:<30} {:<10} {:>10} {:>10} {:>10}  {}"


def ratio(one: Measurement, all_of_task: list[Measurement]) -> float | None:
    """Returns the time of a step over that of ours in the same precision.

    Where ours has no step in that precision, over ours in float32.
    """
    mine = {
        other.precision: other.median
        for other in all_of_task
        if other.framework == ours.NAME and other.median is not None
    }
    base = mine.get(one.precision, mine.get("float32"))
    return None if base is None or one.median is None else one.median / base


def table(measurements: list[Measurement], sizes: Sizes) -> str:
    """Returns a text of lines: a row a step, by task."""
    lines = []
    for task, title in TITLES.items():
        rows = [one for one in measurements if one.task == task]
        rows.sort(key=lambda one: one.framework != ours.NAME)
        if rows:
            lines += ["", title.format(**dataclasses.asdict(sizes))]
            lines.append(_COLUMNS.format("", "products", "ms", "of ours", "MiB", "").rstrip())
            lines += [_line(one, rows) for one in rows]
    return "\n".join(lines[1:]) + "\n"


def _line(one: Measurement, rows: list[Measurement]) -> str:
    numbers = (
        "-" if value is None else form.format(value)
        for form, value in (
            ("{:.3f}", one.median),
            ("{:.2f}", ratio(one, rows)),
            ("{:.0f}", one.peak_mib),
        )
    )
    name = f"{one.framework} {one.variant}".rstrip()
    told = one.failure.splitlines()[0][:200] if one.failure else ""
    return _COLUMNS.format(name, one.precision, *numbers, told).rstrip()


def as_json(measurements: list[Measurement], sizes: Sizes, machine: dict[str, str]) -> str:
    """Returns all that is known, every repetition and relative error included."""
    results = [
        {
            **dataclasses.asdict(one),
            "median_ms": one.median,
            "ratio": ratio(one, [other for other in measurements if other.task == one.task]),
        }
        for one in measurements
    ]
    told = {
        "machine": machine,
        "sizes": dataclasses.asdict(sizes),
        "tolerances": TOLERANCES,
        "results": results,
    }
    return json.dumps(told, indent=1) + "\n"
