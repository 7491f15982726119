"""Optional packages that only the datasets need."""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def needed_by_datasets() -> Iterator[None]:
    """Within this context, the ImportError of a missing package says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        raise ImportError(
            f"The datasets need the package {package}, which is not installed. To install all "
            'packages that they need, run: pip install "tf_largeout[examples]"',
            name=package,
        ) from error
