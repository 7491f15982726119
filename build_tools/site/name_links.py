"""mkdocs hook: links public names such as `LargeOutput` to their reference."""

import functools
import re

from build_tools.site.public_names import modules

# Unchanged: fenced and indented code, headings, links.
_PARTS = re.compile(
    r"(?P<kept>^```.*?^```|^ {4}.*?$|^#.*?$|\[[^\]]*\]\([^)]*\)|\[[^\]]*\]\[[^\]]*\])"
    r"|`(?P<name>[A-Z]\w+)(?P<call>\([^`]*\))?`",
    re.M | re.S,
)


def on_page_markdown(markdown, page, config, files):
    """Adds the links to the source of a page."""
    return linked(markdown)


def linked(text: str) -> str:
    """Returns the text with a link for each public name that is alone in backticks."""
    return _PARTS.sub(_link, text)


def _link(match):
    path = _paths().get(match["name"])
    return f"[{match[0]}][{path}]" if path else match[0]


@functools.cache
def _paths():
    return {one.name: one.path for module in modules() for one in module.names}
