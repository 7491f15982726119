"""mkdocs hook: adds the notes of lab/ to the site, with their pictures and results.

It also adds the programs and notebooks of examples/, as files to download.

On a Git host, a page in docs/guides links to `../../lab/speed/README.md`, and a note links to
`../../docs/guides/gpu.md`. The site has no folder `docs`: its pages are `guides/...` and
`lab/...`. So this hook removes one `../` from the former link, and `docs/` from the latter.
Links to examples/ change like links to notes.
"""

import pathlib
import posixpath
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The files of each folder that are part of the site.
_SUFFIXES = {"lab": (".json", ".md", ".png"), "examples": (".ipynb", ".py")}
_TARGET = re.compile(r"(?<=\]\()(?!\w+:)(?P<path>[^)#\s]+)")


def on_files(files, config):
    """Adds the notes, the pictures and results that they link to, and the examples."""
    from mkdocs.structure.files import File  # here: tests do not need mkdocs

    for folder, suffixes in _SUFFIXES.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes:
                name = path.relative_to(ROOT).as_posix()
                files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Rewrites the links of a page between docs/, lab/ and examples/."""
    return site_links(markdown, page.file.src_uri)


def site_links(text: str, page: str) -> str:
    """Returns the text of a page with its links rewritten for the site.

    Args:
        text: Markdown, with links between files of the repository.
        page: Its path on the site, such as "guides/gpu.md" or "lab/speed/README.md".
    """
    in_lab = page.startswith("lab/")
    folder = posixpath.dirname(page if in_lab else f"docs/{page}")

    def rewritten(link):
        target = posixpath.normpath(posixpath.join(folder, link["path"]))
        if not target.startswith("docs/" if in_lab else ("lab/", "examples/")):
            return link["path"]
        return posixpath.relpath(target.removeprefix("docs/"), posixpath.dirname(page) or ".")

    return _TARGET.sub(rewritten, text)
