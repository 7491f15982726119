"""griffe extension: converts docstring sections that griffe does not know into Markdown.

griffe knows Args, Attributes and Raises. Keras's "Call arguments" section becomes a second
list of arguments. "Example" becomes a code block. "Returns", "Output shape" and other sections
become paragraphs with a title.
"""

import re
import textwrap

import griffe

from build_tools.site.name_links import linked

_HEADER = re.compile(
    r"^(?P<title>[A-Z][a-z]+(?: [a-z]+)?):\n(?P<body>(?:\n*(?: {4}.*(?:\n|$)))+)", re.M
)
_NAMED = re.compile(r"^(\w+): ", re.M)
_DOCTEST = re.compile(r"^>>> .*(?:\n(?:>>>|\.\.\.) .*)*", re.M)
_TOGETHER = re.compile(r"^ {4}(\w+(?:, \w+)+): ", re.M)
_KNOWN = {"Args", "Attributes", "Raises"}


class Sections(griffe.Extension):
    """Rewrites each docstring when griffe reads it."""

    def on_object(self, *, obj, **kwargs):
        """Rewrites the docstring of a module, class or function."""
        if obj.docstring:
            obj.docstring.value = rewritten(obj.docstring.value)


def rewritten(text: str) -> str:
    """Returns the docstring with all sections but those that griffe knows as Markdown."""
    return linked(_DOCTEST.sub(_code, _HEADER.sub(_section, text)))


def _code(match):
    lines = [line[4:] for line in match[0].splitlines()]
    return "\n".join(["```python", *lines, "```"])


def _section(match):
    title, body = match["title"], textwrap.dedent(match["body"]).strip("\n")
    if title in _KNOWN:
        return _TOGETHER.sub(_apart, match[0])
    if title == "Call arguments":
        return f"Other Args: Call arguments:\n{match['body']}"
    if title == "Example":
        return f"**Example:**\n\n```python\n{body}\n```\n"
    # One line for each part of a tuple.
    body = _NAMED.sub(r"\n- `\1`: ", body) if len(_NAMED.findall(body)) > 1 else body
    return f"**{title}:**\n\n{body}\n"


def _apart(match):
    """Splits "a, b: Constants." into one item per name, as griffe requires."""
    *others, last = match[1].split(", ")
    return "".join(f"    {name}: See `{last}`.\n" for name in others) + f"    {last}: "
