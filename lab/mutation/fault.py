"""An entry in the tables of planted faults."""

import pathlib
from typing import NamedTuple


class Fault(NamedTuple):
    """A small mistake, made by replacing one piece of text in one file.

    Attributes:
        title: What the changed code does wrong.
        file: The changed file, from the root of the repository.
        old: Text that occurs exactly once in the file.
        new: What replaces it.
        tests: Test files and folders that exercise the code, the most specific first.
    """

    title: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def source(self, root: pathlib.Path) -> str:
        """Returns the file's text under `root`. Raises a ValueError if `old` is not unique."""
        text = (root / self.file).read_text()
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.file} must contain this text of the fault '{self.title}' once: "
                f"{self.old!r}. Found it {text.count(self.old)} times. Update lab/mutation."
            )
        return text

    def plant(self, root: pathlib.Path) -> None:
        """Plants the fault in the tree at `root`."""
        text = self.source(root)
        (root / self.file).write_text(text.replace(self.old, self.new))
