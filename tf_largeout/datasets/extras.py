"""Packages that only the datasets need, and that may be missing."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def needed_by_datasets() -> Iterator[None]:
    """Within it a package that is missing is an ImportError that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        raise ImportError(
            f"The datasets need the package {package}, which is not installed. Get it, and "
            'what else they need, by: pip install "tf_largeout[examples]"',
            name=package,
        ) from error
