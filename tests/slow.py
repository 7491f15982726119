"""Which cases of a parametrized test run only with `--run-slow`."""

import pytest


def slow_but(kept, cases):
    """Returns all `cases` for `parametrize`; those that are not among `kept` are slow.

    A case of several arguments is a tuple of them. A kept case that is not among `cases` is an
    error: it would silently leave the short suite.
    """
    cases = list(cases)
    missing = [case for case in kept if case not in cases]
    if missing:
        raise ValueError(f"`kept` must be among the cases. Received others: {missing}.")
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[] if case in kept else [pytest.mark.slow],
        )
        for case in cases
    ]
