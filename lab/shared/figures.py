"""Figures of several runs as text."""

import statistics


def mean_and_deviation(values, digits=1):
    """Mean ± standard deviation as text; a single value alone; "" without values."""
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):,.{digits}f}{spread}" if values else ""
