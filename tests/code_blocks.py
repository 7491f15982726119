"""Runs the Python blocks of a page of Markdown."""

import re

_BLOCK = re.compile(r"^```python(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.M | re.S)
_NOT_RUN = re.compile(r' title="Not run by the tests: [^"]+"')


def run_blocks(page):
    """Runs the blocks in order in one namespace, and returns the namespace.

    A block that cannot be run has the title "Not run by the tests: ..." on the page.
    """
    text, namespace = page.read_text(), {"__name__": "__main__"}
    for block in _BLOCK.finditer(text):
        if block["info"]:
            assert _NOT_RUN.fullmatch(block["info"]), f"{page}: {block['info']!r}"
            continue
        # The empty lines make errors show the line of the page.
        lines = "\n" * text.count("\n", 0, block.start("code"))
        exec(compile(lines + block["code"], str(page), "exec"), namespace)
    return namespace


def has_blocks(page):
    """Returns whether the page contains Python."""
    return bool(_BLOCK.search(page.read_text()))
