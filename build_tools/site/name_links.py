"""Hook of mkdocs: `LargeOutput` in the text of a page becomes a link to its reference."""

import functools
import re

from build_tools.site.public_names import modules

# What must stay as it is: fenced and indented code, headings, links.
_PARTS = re.compile(
    r"(?P<kept>^```.*?^```|^ {4}.*?$|^#.*?$|\[[^\]]*\]\([^)]*\)|\[[^\]]*\]\[[^\]]*\])"
    r"|`(?P<name>[A-Z]\w+)(?P<call>\([^`]*\))?`",
    re.M | re.S,
)


def on_page_markdown(markdown, page, config, files):
    """Called with the source of each page."""
    return linked(markdown)


def linked(text: str) -> str:
    """The text with a link at each public name that stands alone in backticks."""
    return _PARTS.sub(_link, text)


def _link(match):
    path = _paths().get(match["name"])
    return f"[{match[0]}][{path}]" if path else match[0]


@functools.cache
def _paths():
    return {one.name: one.path for module in modules() for one in module.names}
