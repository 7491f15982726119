"""mkdocs hook: warns about broken links in the built site.

mkdocs checks the links in the sources of the pages. This hook checks the HTML, including the
reference and the theme. It does not check links to other sites.
"""

import html.parser
import logging
import pathlib
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_log = logging.getLogger("mkdocs.hooks.link_check")


class Page(NamedTuple):
    """The links of a page, and its anchors, which other links may use as targets."""

    links: list[str]
    anchors: set[str]


def on_post_build(config):
    """Checks the site after mkdocs has written it."""
    for problem in broken_links(pathlib.Path(config.site_dir)):
        _log.warning(problem)


def broken_links(site: pathlib.Path) -> list[str]:
    """Returns a description of each broken link within the site."""
    site = site.resolve()
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    problems = []
    for path, page in pages.items():
        for link in page.links:
            problem = _problem(site, pages, path, link)
            if problem:
                problems.append(f"{path.relative_to(site)}: {link!r} {problem}")
    return problems


def _problem(site, pages, page, link):
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    if parts.path.startswith("/") or page.name == "404.html":
        return None  # the 404 page of a server; its links start at the root
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site) or not target.exists():
        return "is not a file of the site"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors:
        return "is not an anchor of that page"
    return None


def _read(path):
    parser = _PageParser()
    parser.feed(path.read_text())
    return Page(parser.links, parser.anchors)


class _PageParser(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.anchors |= {found[key] for key in ("id", "name") if found.get(key)}
        self.links += [found[key] for key in ("href", "src") if found.get(key)]
