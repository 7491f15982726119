"""The code blocks of README.md run, and the first example learns."""

import pytest

from tests.code_blocks import run_blocks
from tests.source_tree import ROOT


@pytest.mark.slow
def test_the_python_blocks_run_in_order_and_the_model_learns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = run_blocks(ROOT / "README.md")
    assert (tmp_path / "model.keras").is_file()
    assert namespace["result"]["precision_at_1"] > 0.6
