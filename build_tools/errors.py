"""The error of a build that cannot go on."""


class BuildError(RuntimeError):
    """Says what the build needs, what it found, and how to go on."""
