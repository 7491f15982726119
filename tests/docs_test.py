"""The Python code of the guides runs, and links between the project's texts are valid.

`make docs` also checks the finished site, with its anchors and the reference.
"""

import re

import pytest

from tests.code_blocks import has_blocks, run_blocks
from tests.slow import slow_but
from tests.source_tree import ROOT, each_of, name

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *(ROOT / "lab").rglob("*.md")])
RESULTS = [
    path for path in sorted((ROOT / "lab").rglob("*")) if path.suffix in (".json", ".png")
]
PROGRAMS = [
    path for path in sorted((ROOT / "lab").rglob("*.py")) if 'new_parser("' in path.read_text()
]
# A page with little training. The slow readme_test.py tests README.md.
SHORT = [ROOT / "docs/guides/optimizers.md"]
ON_JAX = ROOT / "docs/guides/jax.md"  # tests/jax/docs_test.py runs it.
RUN = [page for page in PAGES if has_blocks(page) and page != ON_JAX]
TEXTS = sorted(ROOT.glob("*.md")) + PAGES
_LINK = re.compile(r"\]\((?!\w+:)(?P<path>[^)#]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("page", slow_but(SHORT, RUN), ids=name)
def test_the_python_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_blocks(page)


@each_of(TEXTS)
def test_links_point_to_files(text):
    links = [found["path"] for found in _LINK.finditer(text.read_text())]
    missing = [link for link in links if not (text.parent / link).exists()]
    assert not missing, f"{name(text)} links to {missing}."


@each_of(PAGES)
def test_pages_link_to_files_that_the_site_has(page):
    links = [found["path"] for found in _LINK.finditer(page.read_text())]
    targets = [name((page.parent / link).resolve()) for link in links]
    missing = [one for one in targets if not one.startswith(("docs/", "examples/", "lab/"))]
    assert not missing, f"{name(page)} links to {missing}: write the path without a link."


@each_of(PAGES)
def test_each_page_is_in_the_navigation_of_the_site(page):
    source = name(page).removeprefix("docs/")
    navigation = (ROOT / "mkdocs.yml").read_text().splitlines()
    assert any(line.endswith(source) for line in navigation), f"List {source} in mkdocs.yml."


@each_of(RESULTS)
def test_each_result_file_is_mentioned_in_the_note_of_its_folder(path):
    note = (path.parent / "README.md").read_text()
    assert path.name in note, f"No text of {name(path.parent)}/README.md names {path.name}."


@each_of(PROGRAMS)
def test_each_program_of_the_lab_is_listed(path):
    module = name(path.with_suffix("")).replace("/", ".")
    assert f"`{module}`" in (ROOT / "lab/README.md").read_text(), (
        f"List {module} in lab/README.md."
    )
