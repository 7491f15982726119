"""Extension of griffe: makes Markdown of the sections of our docstrings that it does not know.

It knows Args, Attributes and Raises. Keras's "Call arguments" become a second list of
arguments, "Example" a block of code, "Returns", "Output shape" and the like a titled paragraph.
"""

import re
import textwrap

import griffe

from build_tools.site.name_links import linked

_HEADER = re.compile(
    r"^(?P<title>[A-Z][a-z]+(?: [a-z]+)?):\n(?P<body>(?:\n*(?: {4}.*(?:\n|$)))+)", re.M
)
_NAMED = re.compile(r"^(\w+): ", re.M)
_PAIR = re.compile(r"^( {4})(\w+), (\w+): ", re.M)
_KNOWN = {"Args", "Attributes", "Raises"}


class Sections(griffe.Extension):
    """Rewrites each docstring as it is read."""

    def on_object(self, *, obj, **kwargs):
        """Called for each module, class and function."""
        if obj.docstring:
            obj.docstring.value = rewritten(obj.docstring.value)


def rewritten(text: str) -> str:
    """The docstring with the sections that griffe knows, and Markdown for the others."""
    return linked(_HEADER.sub(_section, text))


def _section(match):
    title, body = match["title"], textwrap.dedent(match["body"]).strip("\n")
    if title == "Args":  # "a, b: constants" says two arguments in one
        return _PAIR.sub(r"\1\2: See `\3`.\n\1\3: ", match[0])
    if title in _KNOWN:
        return match[0]
    if title == "Call arguments":
        return f"Other Args: Call arguments:\n{match['body']}"
    if title == "Example":
        return f"**Example:**\n\n```python\n{body}\n```\n"
    # The parts of a tuple, one a line.
    body = _NAMED.sub(r"\n- `\1`: ", body) if len(_NAMED.findall(body)) > 1 else body
    return f"**{title}:**\n\n{body}\n"
