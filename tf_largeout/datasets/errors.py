"""Errors of the datasets."""


class SourceFileError(ValueError):
    """A source file is missing, damaged, or not of the expected version."""
