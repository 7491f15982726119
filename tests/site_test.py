"""The hooks of `make docs`. Tests that read docstrings need the extra `docs`."""

import pytest

from build_tools.site.lab_pages import site_links
from build_tools.site.link_check import broken_links

DOCSTRING = """Finds rows.

Args:
    a, b: Two numbers.

Call arguments:
    x: Float `[batch]`.

Returns:
    A tuple of
    scores: float32 `[k]`.
    ids: int64 `[k]`.

Example:
    find(1, 2)

>>> find(
...     3)
"""
REWRITTEN = """Finds rows.

Args:
    a: See `b`.
    b: Two numbers.

Other Args: Call arguments:
    x: Float `[batch]`.

**Returns:**

A tuple of

- `scores`: float32 `[k]`.

- `ids`: int64 `[k]`.

**Example:**

```python
find(1, 2)
```

```python
find(
    3)
```
"""


def test_links_to_missing_files_and_anchors_are_found(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text(
        '<a href="sub/page.html#there">x</a><a href="sub/page.html#gone">x</a>'
        '<a href="gone.html">x</a><img src="gone.png"><a href="https://example.org">x</a>'
    )
    (tmp_path / "sub" / "page.html").write_text('<p id="there"></p><a href="../">x</a>')
    assert broken_links(tmp_path) == [
        "index.html: 'sub/page.html#gone' is not an anchor of that page",
        "index.html: 'gone.html' is not a file of the site",
        "index.html: 'gone.png' is not a file of the site",
    ]


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("guides/gpu.md", "../../lab/speed/README.md#a", "../lab/speed/README.md#a"),
        ("index.md", "../lab/speed/tied.json", "lab/speed/tied.json"),
        ("guides/gpu.md", "../../examples/notebooks/a.ipynb", "../examples/notebooks/a.ipynb"),
        ("lab/README.md", "../docs/gpu.md", "../gpu.md"),
        ("lab/speed/README.md", "../../docs/guides/gpu.md", "../../guides/gpu.md"),
        ("lab/speed/README.md", "tied.json", "tied.json"),
        ("guides/gpu.md", "https://example.org/lab", "https://example.org/lab"),
    ],
)
def test_links_between_docs_and_lab_are_rewritten_for_the_site(page, link, expected):
    assert site_links(f"[x]({link})", page) == f"[x]({expected})"


def test_sections_of_keras_docstrings_become_markdown():
    pytest.importorskip("griffe", reason="needs the extra docs")
    from build_tools.site.docstrings import rewritten

    assert rewritten(DOCSTRING) == REWRITTEN


def test_public_names_in_text_become_links_but_not_in_code():
    pytest.importorskip("griffe", reason="needs the extra docs")
    from build_tools.site.name_links import linked

    link = "[`LazyAdam(1e-3)`][tf_largeout.optimizers.LazyAdam]"
    assert linked("Take `LazyAdam(1e-3)`, `Adam`.") == f"Take {link}, `Adam`."
    code = "# `LazyAdam`\n\n```\n`LazyAdam`\n```\n\n    `LazyAdam`\n"
    assert linked(code) == code


def test_all_public_names_are_in_the_reference():
    pytest.importorskip("griffe", reason="needs the extra docs")
    import tf_largeout
    from build_tools.site.public_names import modules

    found = {one.path: {name.name for name in one.names} for one in modules()}
    for name in ("layers", "losses", "metrics", "optimizers", "samplers"):
        module = getattr(tf_largeout, name)
        assert found[f"tf_largeout.{name}"] == set(module.__all__)


def test_the_reference_of_layers_starts_with_large_output_and_ends_with_interfaces():
    pytest.importorskip("griffe", reason="needs the extra docs")
    from build_tools.site.api_pages import _FIRST, _INTERFACES, _groups
    from build_tools.site.public_names import modules

    names = {one.name for module in modules() for one in module.names}
    assert {*_FIRST, *_INTERFACES} <= names
    layers = next(one for one in modules() if one.path == "tf_largeout.layers")
    (_, own), (_, interfaces) = _groups(layers)
    assert own[0].name == "LargeOutput"
    assert "ClassMatrix" in {one.name for one in interfaces}
