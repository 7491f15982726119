"""The error of a failed build."""


class BuildError(RuntimeError):
    """A build has failed. The message says what it needs, what it found, and what to do."""
