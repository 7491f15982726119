"""The notebooks are stored without outputs, and run from top to bottom.

A notebook runs as a Python program of its code cells, in a process of its own. This needs no
Jupyter. The cell with the tag "install" is left out, and the other cells have no magics.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.source_tree import ROOT, each_of, name

NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))
KEYS = {
    "markdown": {"cell_type", "id", "metadata", "source"},
    "code": {"cell_type", "execution_count", "id", "metadata", "outputs", "source"},
}
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# What must be true at the end of each notebook.
RESULTS = {
    "identities": "table['pairs correct'].iloc[1:].min() > table['pairs correct'].iloc[0] + 5",
    "language_model_head": "perplexity.iloc[-2] < 0.5 * perplexity['frequencies of tokens']",
    "next_item": "table['ndcg_at_10']['sampled_softmax'] > 1.3 * table['ndcg_at_10'].iloc[0]",
}


def _is_install(cell):
    return cell["metadata"].get("tags") == ["install"]


def _code_cells(path):
    return [cell for cell in json.loads(path.read_text())["cells"] if "outputs" in cell]


@each_of(NOTEBOOKS)
def test_notebooks_are_stored_without_outputs(path):
    text = path.read_text()
    notebook = json.loads(text)
    assert set(notebook) == {"cells", "metadata", "nbformat", "nbformat_minor"}, name(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5), name(path)
    assert notebook["metadata"] == METADATA, f"{name(path)}: {notebook['metadata']}"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids), f"{name(path)}: two cells have one id."
    for cell in notebook["cells"]:
        where = f"{name(path)}, cell {cell['id']!r}"
        assert re.fullmatch(r"[\w-]{1,64}", cell["id"]), where
        assert set(cell) == KEYS[cell["cell_type"]], where
        assert not cell["metadata"] or _is_install(cell), f"{where} has metadata."
        assert cell.get("outputs", []) == [], f"{where} has outputs: clear them."
        assert cell.get("execution_count") is None, f"{where} has a number: clear outputs."
        assert all(line.endswith("\n") for line in cell["source"][:-1]), where
    written = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    assert text == written, f"{name(path)}: write it as Jupyter does, with indent=1."


@each_of(NOTEBOOKS)
def test_only_the_cell_that_installs_has_magics(path):
    cells = _code_cells(path)
    assert [_is_install(cell) for cell in cells] == [True] + [False] * (len(cells) - 1)
    for cell in cells[1:]:
        compile("".join(cell["source"]), f"{name(path)}, cell {cell['id']!r}", "exec")


@each_of(NOTEBOOKS)
def test_a_guide_links_to_each_notebook(path):
    guides = (ROOT / "docs/guides").glob("*.md")
    link = f"](../../examples/notebooks/{path.name})"
    assert any(link in guide.read_text() for guide in guides), f"No guide has {link}."


def test_ruff_checks_the_notebooks():
    check = [sys.executable, "-m", "ruff", "check"]
    command = [*check, "--show-files", "examples"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert {str(path) for path in NOTEBOOKS} <= set(files.stdout.split())
    subprocess.run([*check, *NOTEBOOKS], cwd=ROOT, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path):
    if path.stem == "language_model_head" and not importlib.util.find_spec("keras_hub"):
        pytest.skip("not installed: pip install keras-hub")
    examples = tmp_path / "examples"
    shutil.copytree(ROOT / "examples", examples, ignore=shutil.ignore_patterns("*.ipynb"))
    program = examples / "notebooks" / "program.py"
    cells = ["".join(cell["source"]) for cell in _code_cells(path)[1:]]
    program.write_text("\n\n".join([*cells, f"assert {RESULTS[path.stem]}, 'results'"]))
    env = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    ended = subprocess.run(
        [sys.executable, program], cwd=program.parent, env=env, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
